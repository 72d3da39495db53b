//! The generators that are compared.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hob_loadtest::LocalRun;
use hob_loadtest::generator::Targets;
use hob_loadtest::plan::{Format, Plan};

use crate::server::Server;

const CONNECTIONS: &str = "64";
/// As Linux counts CPU time in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Tool {
    Hob,
    Wrk,
    Hey,
    Ab,
}

/// One round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
}

impl Tool {
    pub(crate) const ALL: [Self; 4] = [Self::Hob, Self::Wrk, Self::Hey, Self::Ab];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hob => "Hob",
            Self::Wrk => "wrk",
            Self::Hey => "hey",
            Self::Ab => "ab",
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Self::Hob)
            || Command::new("which").arg(self.name()).output().is_ok_and(|found| found.status.success())
    }

    /// Runs the tool on the second core.
    pub(crate) fn measure(self, server: &Server, seconds: u32) -> Result<Figures> {
        let (served, cpu, begun) = (server.served(), children_ticks()?, Instant::now());
        self.run(&server.url(), seconds)?;
        let requests = (server.served() - served) as f64;
        let cpu = (children_ticks()? - cpu) as f64 / TICKS_PER_SECOND;
        Ok(Figures { per_second: requests / begun.elapsed().as_secs_f64(), cpu_us: cpu * 1e6 / requests })
    }

    /// Ten seconds at a modest pace; answers with the p99 that the tool reports.
    pub(crate) fn measure_slowly(self, server: &Server) -> Result<String> {
        let text = match self {
            Self::Hob => {
                let exe = std::env::current_exe()?;
                output(Command::new(exe).args(["generate", &format!("rate {}", server.url()), "10"]))?
            }
            _ => self.run(&server.url(), 10)?,
        };
        let line = text.lines().find(|line| line.trim_start().starts_with("99%"));
        Ok(line.map_or_else(|| "not told".to_owned(), |line| line.trim().to_owned()))
    }

    fn run(self, url: &str, seconds: u32) -> Result<String> {
        let lasting = format!("{seconds}s");
        let seconds = seconds.to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]);
        match self {
            Self::Hob => command.arg(std::env::current_exe()?).args(["generate", url, &seconds]),
            Self::Wrk => command.args(["wrk", "--latency", "-t1", "-c", CONNECTIONS, "-d", &lasting, url]),
            Self::Hey => command.args(["hey", "-cpus", "1", "-c", CONNECTIONS, "-z", &lasting, url]),
            Self::Ab => {
                command.args(["ab", "-k", "-q", "-c", CONNECTIONS, "-t", &seconds, "-n", "100000000", url])
            }
        };
        output(&mut command)
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// CPU time of all children that have ended.
fn children_ticks() -> Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may hold spaces; what follows it does not.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    Ok(fields[13].parse::<u64>()? + fields[14].parse::<u64>()?)
}

/// Hob's own generator, in a process of its own. `rate URL` asks for 500 a second instead of all that it can.
pub(crate) fn generate(url: &str, seconds: u64) -> Result<()> {
    let (load, url) = match url.strip_prefix("rate ") {
        Some(url) => (format!("{{ rate = 500, for = \"{seconds}s\", most_users = 64 }}"), url),
        None => (format!("{{ users = {CONNECTIONS}, for = \"{seconds}s\" }}"), url),
    };
    let text = format!(
        "name = 'bench'\n[[scenario]]\nname = 's'\nload = {load}\n[[scenario.step]]\nname = 'a'\n\
         request = 'GET {url}'\nexpect = {{ status = 200 }}\n"
    );
    let plan = Plan::read(&text, Format::Toml)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let mut run = LocalRun::start(plan, 0, &Targets::default(), 1).await?;
        while run.next().await.is_some() {}
        anyhow::Ok(run.report())
    })?;
    println!("99% {:?}", Duration::from_secs_f64(report.latency.p99 / 1000.0));
    anyhow::ensure!(report.failed == 0, "{} requests failed: {:?}", report.failed, report.faults);
    Ok(())
}
