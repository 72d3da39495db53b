//! The `[load]` section of the configuration.

use hob_net::Outbound;
use hob_service::Period;
use hob_service::config::{Mistakes, check_host};

use crate::generator::Targets;

/// Of the generator on one node.
const MAX_THREADS: u32 = 64;

hob_service::section! {
    /// Load: the hosts that may be tested, and how this node takes part in runs.
    pub struct Config("load") {
        /// Hosts other than this machine that may be tested, as they are written in URLs.
        pub hosts: Vec<String> = Vec::new(),
        /// The highest rate of a run to these hosts, in requests per second.
        pub max_rate: u32 = 1000 => 1..,
        /// The highest number of concurrent users of a run.
        pub max_users: u32 = 10_000 => 1..,
        /// The number of runs that this node works on at a time; 0 for a node that generates no load.
        pub max_concurrent_runs: u32 = 1,
        /// Threads of the generator; 0 for one less than the number of cores.
        pub threads: u32 = 0 => 0..=MAX_THREADS,
        /// How long a run waits for its runners before it starts with those that have joined.
        pub gather_timeout: Period = Period::from_secs(3),
        /// The lease of a runner. A runner that does not renew it is lost, and its run ends as lost.
        pub lease: Period = Period::from_secs(5) => Period::from_millis(100)..,
        /// A pending run gains one priority for each of these intervals in the queue.
        pub aging_interval: Period = Period::from_secs(60) => Period::from_millis(1)..,
        /// How long the measurements of a run are kept. Reports are kept forever.
        pub keep_results: Period = Period::from_days(30) => Period::from_secs(1)..,
    }
    check check;
}

fn check(config: &Config, mistakes: &mut Mistakes) {
    mistakes.check_each("hosts", &config.hosts, |host| check_host(host));
}

impl Config {
    pub(crate) fn targets(&self, outbound: &Outbound) -> Targets {
        let (hosts, outbound) = (self.hosts.clone(), outbound.clone());
        Targets { hosts, max_rate: f64::from(self.max_rate), outbound }
    }

    pub(crate) fn generator_threads(&self) -> u32 {
        if self.threads > 0 {
            return self.threads;
        }
        // One core is left for the server itself.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        u32::try_from(cores.saturating_sub(1)).unwrap_or(1).clamp(1, MAX_THREADS)
    }
}
