//! Scripts.

use super::options::is_flush_mode;
use super::{Args, CONTROL, Command, Flags, Keys, container, session};
use crate::number::int;
use crate::reply::{Failure, Outcome, Reply};
use crate::turn::Turn;

const LUA: Flags = CONTROL.and(Flags::LUA);
const COUNTED: Keys = Keys::Counted { at: 2 };

pub(super) const COMMANDS: &[Command] = &[
    session("eval", -3, LUA, COUNTED, eval),
    session("evalsha", -3, LUA, COUNTED, |turn, args| run(turn, args[1], args)),
    container(
        "script",
        &[
            session("load", 3, LUA, Keys::None, load),
            session("exists", -3, CONTROL, Keys::None, exists),
            session("flush", -2, CONTROL, Keys::None, flush),
            session("kill", 2, CONTROL.and(Flags::ALLOW_BUSY), Keys::None, |turn, _| turn.watchdog.kill()),
        ],
    ),
];

fn eval(turn: &mut Turn<'_>, args: Args<'_>) -> Outcome {
    split(args)?;
    let sha = turn.scripts()?.load(args[1])?;
    run(turn, &sha, args)
}

fn run(turn: &mut Turn<'_>, sha: &[u8], args: Args<'_>) -> Outcome {
    let (keys, argv) = split(args)?;
    let origin = turn.session.origin;
    turn.scripts()?.run(sha, keys, argv, origin)
}

/// A script's KEYS and ARGV.
fn split<'a>(args: Args<'a>) -> Outcome<(Args<'a>, Args<'a>)> {
    let count = int(args[2])?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Failure::new("ERR Number of keys can't be negative"));
    };
    if count > args.len() - 3 {
        return Err(Failure::new("ERR Number of keys can't be greater than number of args"));
    }
    Ok(args[3..].split_at(count))
}

fn load(turn: &mut Turn<'_>, args: Args<'_>) -> Outcome {
    Ok(Reply::bulk(turn.scripts()?.load(args[2])?))
}

fn exists(turn: &mut Turn<'_>, args: Args<'_>) -> Outcome {
    let scripts = turn.scripts()?;
    let exists = args[2..].iter().map(|sha| Reply::flag(scripts.exists(sha)));
    Ok(Reply::Array(exists.collect()))
}

fn flush(turn: &mut Turn<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 || args.get(2).is_some_and(|word| !is_flush_mode(word)) {
        return Err(Failure::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    turn.scripts()?.flush();
    Ok(Reply::OK)
}
