//! One look at everything that could grow.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::world::World;

const MIB: f64 = 1024.0 * 1024.0;

/// The unit of CPU time in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The rows of each table that has some. Exact: estimates of PostgreSQL lag behind.
const ROWS: &str = "SELECT relname, (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM %I', relname), \
                    false, true, '')))[1]::text FROM pg_stat_user_tables ORDER BY relname";

/// What was used at one time.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) at: Duration,
    /// CPU time of the nodes since the last sample, as a share of one core.
    pub(super) cpu: f64,
    /// The share of the time in which the cores that the run may use were busy, with the servers, the traffic and everything else
    /// but programs of low priority, which only take what is left.
    pub(super) cores: f64,
    pub(super) resident_bytes: Vec<u64>,
    pub(super) open_files: u64,
    pub(super) threads: u64,
    pub(super) keys: u64,
    pub(super) redis_bytes: u64,
    pub(super) rows: BTreeMap<String, u64>,
}

/// A line of the plot, and a row of the table.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: fn(&Sample) -> f64,
}

pub(super) const SERIES: &[Series] = &[
    Series { name: "CPU of all nodes", unit: "% of a core", value: |sample| sample.cpu * 100.0 },
    Series {
        name: "CPU of all programs",
        unit: "% of the cores of the run",
        value: |sample| sample.cores * 100.0,
    },
    Series {
        name: "memory of the largest node",
        unit: "MiB",
        value: |sample| sample.resident_bytes.iter().copied().max().unwrap_or(0) as f64 / MIB,
    },
    Series {
        name: "memory of all nodes",
        unit: "MiB",
        value: |sample| sample.resident_bytes.iter().sum::<u64>() as f64 / MIB,
    },
    Series { name: "open files of all nodes", unit: "", value: |sample| sample.open_files as f64 },
    Series { name: "threads of all nodes", unit: "", value: |sample| sample.threads as f64 },
    Series { name: "keys in Redis", unit: "", value: |sample| sample.keys as f64 },
    Series { name: "memory of Redis", unit: "MiB", value: |sample| sample.redis_bytes as f64 / MIB },
    Series { name: "rows in PostgreSQL", unit: "", value: |sample| sample.rows.values().sum::<u64>() as f64 },
];

/// Takes samples, and remembers what it needs for the next one.
#[derive(Debug)]
pub(super) struct Sampler {
    begun: Instant,
    last: Option<(Instant, f64)>,
    last_cores: Option<CoreTime>,
}

/// The time of some cores since the machine was started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CoreTime {
    all: u64,
    idle: u64,
}

impl Sampler {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), last: None, last_cores: None }
    }

    /// `None` if a process or a server did not answer.
    pub(super) fn sample(&mut self, world: &World) -> Option<Sample> {
        let mut sample = Sample { at: self.begun.elapsed(), ..Sample::default() };
        let mut cpu_seconds = 0.0;
        for node in &world.nodes {
            let folder = format!("/proc/{}", node.process.id());
            let status = fs::read_to_string(format!("{folder}/status")).ok()?;
            sample.resident_bytes.push(field(&status, "VmRSS:")? * 1024);
            sample.threads += field(&status, "Threads:")?;
            sample.open_files += fs::read_dir(format!("{folder}/fd")).ok()?.count() as u64;
            cpu_seconds += cpu(&fs::read_to_string(format!("{folder}/stat")).ok()?)?;
        }
        for member in world.redis.masters() {
            sample.keys += member.server.try_command::<u64>(&["DBSIZE"]).ok()?;
            let memory: redis::InfoDict = member.server.try_command(&["INFO", "memory"]).ok()?;
            sample.redis_bytes += memory.get::<u64>("used_memory")?;
        }
        sample.rows = rows(&world.postgres.try_psql(ROWS).ok()?);
        let allowed = allowed_cores(&fs::read_to_string("/proc/self/status").ok()?)?;
        let cores = core_time(&fs::read_to_string("/proc/stat").ok()?, &allowed)?;
        if let Some(before) = self.last_cores.replace(cores) {
            // The time of waiting for the disk is an estimate, which can become smaller.
            let all = cores.all.saturating_sub(before.all).max(1);
            sample.cores = 1.0 - cores.idle.saturating_sub(before.idle) as f64 / all as f64;
        }
        let now = Instant::now();
        if let Some((then, before)) = self.last.replace((now, cpu_seconds)) {
            sample.cpu = (cpu_seconds - before) / now.duration_since(then).as_secs_f64();
        }
        Some(sample)
    }
}

/// A number after a name in `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The CPU time in `/proc/PID/stat`, in seconds.
fn cpu(stat: &str) -> Option<f64> {
    // Only the name of the program, in parentheses, can contain spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    Some(f64::from(ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// The cores that a process may use, by its `/proc/PID/status`.
fn allowed_cores(status: &str) -> Option<Vec<RangeInclusive<usize>>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').map(range).collect()
}

/// The time of these cores in `/proc/stat`. Time in which a core waits for the disk or runs programs of low priority is idle, and
/// the time of guests is contained in another.
fn core_time(stat: &str, cores: &[RangeInclusive<usize>]) -> Option<CoreTime> {
    let mut time = CoreTime::default();
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        let core = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse::<usize>().ok());
        if core.is_some_and(|core| cores.iter().any(|range| range.contains(&core))) {
            let ticks = fields.take(8).map(|field| field.parse().ok()).collect::<Option<Vec<u64>>>()?;
            time.all += ticks.iter().sum::<u64>();
            time.idle += ticks.get(1)? + ticks.get(3)? + ticks.get(4)?;
        }
    }
    (time.all > 0).then_some(time)
}

/// Lines of a table and its number of rows, without the empty ones.
fn rows(lines: &str) -> BTreeMap<String, u64> {
    let counted = lines.lines().filter_map(|line| {
        let (table, count) = line.split_once('|')?;
        Some((table.to_owned(), count.parse().ok()?))
    });
    counted.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::{CoreTime, allowed_cores, core_time, cpu, field, rows};

    #[test]
    fn proc_is_read() {
        let status = "Name:\thob\nVmRSS:\t   1204 kB\nThreads:\t7\n";
        assert_eq!((field(status, "VmRSS:"), field(status, "Threads:")), (Some(1204), Some(7)));
        let stat = "12 (hob (x) y) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 7 0 1 2 3";
        assert_eq!(cpu(stat), Some(2.0));
        assert_eq!(cpu("12 (hob"), None);
        assert_eq!(allowed_cores("Name:\thob\nCpus_allowed_list:\t0,2-3\n"), Some(vec![0..=0, 2..=3]));
        let stat = "cpu  10 2 20 300 4 0 1 5 90 0\ncpu0 5 1 10 150 2 0 1 2 45 0\ncpu1 5 1 10 150 2 0 0 3 45 0\nintr 7\n";
        assert_eq!(core_time(stat, &[0..=1]), Some(CoreTime { all: 342, idle: 306 }));
        assert_eq!(core_time(stat, &[0..=0]), Some(CoreTime { all: 171, idle: 153 }));
        assert_eq!(core_time(stat, &[4..=5]), None);
    }

    #[test]
    fn tables_without_rows_are_left_out() {
        let found = rows("chat_block|0\nchat_event|12\nhob_meta|1");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("chat_event".to_owned(), 12), ("hob_meta".to_owned(), 1)]
        );
    }
}
