//! The commands of the namespace `HOB`, and the faults that they ask for.

use std::sync::Arc;
use std::time::Duration;

use hob_commands::{Flags, resolve};
use hob_engine::Engine;
use parking_lot::Mutex;

use super::clock::{TestClock, TooFar};
use super::guard::Violations;

const USAGE: &str = "ERR usage: HOB CLOCK [ADVANCE duration | FREEZE | RESUME] | HOB FAULT LATENCY duration [count] | \
                     HOB FAULT (DISCONNECT | LOADING | READONLY) [count] | HOB FAULT (FLUSH | CLEAR) | HOB VIOLATIONS | \
                     HOB RESET";
const TOO_FAR: &str = "ERR the time cannot move to the year 2287 or later";

/// Commands that clients send while they connect. Faults do not affect them.
const SETUP: [&str; 6] = ["HELLO", "AUTH", "CLIENT", "SELECT", "INFO", "COMMAND"];

/// What happens to a command instead of running at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Wait(Duration),
    Disconnect,
    Refuse(&'static str),
}

/// How many commands each fault still affects.
#[derive(Debug, Default)]
struct Faults {
    latency: Duration,
    slow: u64,
    disconnect: u64,
    loading: u64,
    readonly: u64,
}

#[derive(Debug)]
pub(super) struct Control {
    engine: Engine,
    clock: TestClock,
    violations: Arc<Violations>,
    faults: Mutex<Faults>,
}

impl Control {
    pub(super) fn new(engine: Engine, clock: TestClock, violations: Arc<Violations>) -> Control {
        Control { engine, clock, violations, faults: Mutex::default() }
    }

    /// The fault that affects a command, if any.
    pub(super) fn fault(&self, words: &[&[u8]]) -> Option<Fault> {
        let name = words.first()?.to_ascii_uppercase();
        if SETUP.iter().any(|setup| setup.as_bytes() == name) {
            return None;
        }
        let flags = resolve(words).map_or(Flags::NONE, |command| command.flags);
        let faults = &mut *self.faults.lock();
        let hits = |left: &mut u64| {
            let hit = *left > 0;
            *left = left.saturating_sub(1);
            hit
        };
        if hits(&mut faults.disconnect) {
            return Some(Fault::Disconnect);
        }
        if !flags.has(Flags::LOADING) && hits(&mut faults.loading) {
            return Some(Fault::Refuse("LOADING Redis is loading the dataset in memory"));
        }
        if (flags.has(Flags::WRITE) || flags.has(Flags::LUA)) && hits(&mut faults.readonly) {
            return Some(Fault::Refuse("READONLY You can't write against a read only replica."));
        }
        hits(&mut faults.slow).then_some(Fault::Wait(faults.latency))
    }

    /// Runs a command of the namespace; returns the reply in RESP.
    pub(super) fn run(&self, words: &[Vec<u8>]) -> Vec<u8> {
        let words: Vec<String> =
            words.iter().skip(1).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let texts: Vec<&str> = upper.iter().map(String::as_str).collect();
        match texts.as_slice() {
            ["CLOCK"] => format!(":{}\r\n", self.clock.now().as_millis()).into_bytes(),
            ["VIOLATIONS"] => texts_reply(&self.violations.lines()),
            _ => self.change(&texts, &words).map_or_else(error, |()| b"+OK\r\n".to_vec()),
        }
    }

    /// Runs a command that replies with `OK`, or returns an error for the client. `upper` has the words in upper case.
    fn change(&self, upper: &[&str], words: &[String]) -> Result<(), &'static str> {
        match upper {
            ["CLOCK", "ADVANCE", _] => {
                self.clock.advance(duration(&words[2]).ok_or(USAGE)?).map_err(|TooFar| TOO_FAR)?;
            }
            ["CLOCK", "FREEZE"] => self.clock.freeze(),
            ["CLOCK", "RESUME"] => self.clock.resume(),
            ["FAULT", fault @ ..] => self.set_fault(fault, &words[1..]).ok_or(USAGE)?,
            ["RESET"] => self.reset(),
            _ => return Err(USAGE),
        }
        Ok(())
    }

    fn set_fault(&self, fault: &[&str], words: &[String]) -> Option<()> {
        let count = |at: usize| words.get(at).map_or(Some(1), |text| text.parse::<u64>().ok());
        let faults = &mut *self.faults.lock();
        match fault {
            ["LATENCY", _] | ["LATENCY", _, _] => {
                (faults.latency, faults.slow) = (duration(&words[1])?, count(2)?);
            }
            ["DISCONNECT"] | ["DISCONNECT", _] => faults.disconnect = count(1)?,
            ["LOADING"] | ["LOADING", _] => faults.loading = count(1)?,
            ["READONLY"] | ["READONLY", _] => faults.readonly = count(1)?,
            ["FLUSH"] => self.flush(),
            ["CLEAR"] => *faults = Faults::default(),
            _ => return None,
        }
        Some(())
    }

    /// For the next test: no keys and no faults. The violations stay, for the report.
    fn reset(&self) {
        *self.faults.lock() = Faults::default();
        self.clock.resume();
        self.flush();
    }

    fn flush(&self) {
        self.engine.execute(&[b"FLUSHALL"]);
    }
}

fn duration(text: &str) -> Option<Duration> {
    hob_units::parse_duration(text).ok()
}

/// An error reply.
pub(super) fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

fn texts_reply(texts: &[String]) -> Vec<u8> {
    let items: String = texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len())).collect();
    format!("*{}\r\n{items}", texts.len()).into_bytes()
}
