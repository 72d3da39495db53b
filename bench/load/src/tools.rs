//! The generators that are compared, and how each is started.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_kit::{Core, cpu, cpu_of_ended_children, installed_by_cargo, python};
use tempfile::TempDir;

use crate::CONNECTIONS;
use crate::reported::Reported;
use crate::server::Server;

/// The maximum time until the first request of a tool.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Hob,
    Wrk,
    Ab,
    Hey,
    Oha,
    Locust,
}

/// The rate of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    Unlimited,
    /// The request rate, if the tool supports one.
    PerSecond(u32),
}

/// The installed tools that are not system packages.
pub(crate) struct Tools {
    oha: PathBuf,
    python: PathBuf,
    folder: TempDir,
}

/// The results of one run of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    pub(crate) requests: u64,
    pub(crate) bytes_each: u64,
    /// CPU time from the first request on.
    pub(crate) cpu: Duration,
    pub(crate) reported: Reported,
}

const LOCUST_FILE: &str = "
import os
from locust import FastHttpUser, task, constant_throughput
RATE = float(os.environ['RATE'])
class Visitor(FastHttpUser):
    if RATE > 0:
        wait_time = constant_throughput(RATE)
    @task
    def home(self):
        self.client.get('/', headers={'User-Agent': 'hob'})
";

impl Tools {
    pub(crate) fn install() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("locustfile.py"), LOCUST_FILE)?;
        let oha = installed_by_cargo("oha", "1.16.0")?;
        Ok(Self { oha, python: python("locust", &["locust==2.47.0"])?, folder })
    }

    /// Runs a tool on the second core until it exits.
    pub(crate) fn run(&self, tool: Tool, server: &Server, pace: Pace, seconds: u32) -> Result<Measurement> {
        let (served, received, used) = (server.served(), server.received(), cpu_of_ended_children()?);
        let mut command = self.command(tool, &server.url(), pace, seconds)?;
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {command:?}"))?;
        let starting = cpu_until_first_request(&mut child, server, served)?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let requests = server.served() - served;
        ensure!(requests > 0, "{command:?} sent no request: {text}");
        Ok(Measurement {
            requests,
            bytes_each: (server.received() - received) / requests.max(1),
            cpu: (cpu_of_ended_children()? - used).saturating_sub(starting),
            reported: self.reported(tool, &text)?,
        })
    }

    pub(crate) fn command(&self, tool: Tool, url: &str, pace: Pace, seconds: u32) -> Result<Command> {
        let (connections, rate) = (CONNECTIONS.to_string(), pace.to_string());
        let (duration, seconds) = (format!("{seconds}s"), seconds.to_string());
        let each = match pace {
            Pace::Unlimited => 0.0,
            Pace::PerSecond(rate) => f64::from(rate) / f64::from(CONNECTIONS),
        };
        let mut command = Core::Second.command(match tool {
            Tool::Hob => std::env::current_exe()?,
            Tool::Wrk => "wrk".into(),
            Tool::Ab => "ab".into(),
            Tool::Hey => "hey".into(),
            Tool::Oha => self.oha.clone(),
            Tool::Locust => self.python.clone(),
        });
        match tool {
            Tool::Hob => command.args(["generate", url, &rate, &seconds]),
            Tool::Wrk => command.args(["--latency", "-t1", "-c", &connections, "-d", &duration]).args([
                "-H",
                "User-Agent: hob",
                url,
            ]),
            Tool::Ab => {
                command.args(["-k", "-q", "-c", &connections, "-t", &seconds, "-n", "100000000", url])
            }
            Tool::Hey => {
                command.args([
                    "-cpus",
                    "1",
                    "-disable-compression",
                    "-H",
                    "User-Agent: hob",
                    "-c",
                    &connections,
                ]);
                if each > 0.0 {
                    command.args(["-q", &each.to_string()]);
                }
                command.args(["-z", &duration, url])
            }
            Tool::Oha => {
                command.args(["--no-tui", "--output-format", "json", "-H", "User-Agent: hob"]);
                if each > 0.0 {
                    command.args(["-q", &rate, "--latency-correction"]);
                }
                command.args(["-c", &connections, "-z", &duration, url])
            }
            Tool::Locust => {
                command.current_dir(&self.folder).env("RATE", each.to_string());
                command.args([
                    "-m",
                    "locust",
                    "--headless",
                    "--only-summary",
                    "--csv",
                    "run",
                    "-t",
                    &duration,
                ]);
                command.args(["-u", &connections, "-r", &connections, "-H", url.trim_end_matches('/')])
            }
        };
        Ok(command)
    }

    fn reported(&self, tool: Tool, text: &str) -> Result<Reported> {
        let reported = match tool {
            Tool::Hob | Tool::Wrk | Tool::Ab => Reported::from_lines(text),
            Tool::Hey => Reported::from_seconds(text),
            Tool::Oha => Reported::from_json(text)?,
            Tool::Locust => {
                let path = self.folder.path().join("run_stats.csv");
                Reported::from_csv(&std::fs::read_to_string(&path)?)
            }
        };
        ensure!(reported.p99.is_some(), "{} reported no p99: {text}", tool.name());
        Ok(reported)
    }
}

impl Tool {
    pub(crate) const ALL: [Self; 6] = [Self::Hob, Self::Wrk, Self::Ab, Self::Hey, Self::Oha, Self::Locust];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hob => "Hob",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
            Self::Hey => "hey",
            Self::Oha => "oha",
            Self::Locust => "locust",
        }
    }

    /// Whether it supports a request rate.
    pub(crate) fn has_pace(self) -> bool {
        !matches!(self, Self::Wrk | Self::Ab)
    }
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => f.write_str("0"),
            Self::PerSecond(rate) => rate.fmt(f),
        }
    }
}

/// CPU time before the first request, which is excluded: the start of an interpreter is not part of the cost of a request.
fn cpu_until_first_request(child: &mut Child, server: &Server, served: u64) -> Result<Duration> {
    let started = Instant::now();
    while server.served() == served {
        if started.elapsed() > FIRST_REQUEST_TIMEOUT || child.try_wait()?.is_some() {
            // The caller reports the output of the tool.
            return Ok(Duration::ZERO);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    cpu(child.id())
}
