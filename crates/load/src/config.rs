//! The `[load]` section of the configuration.

use hob_service::Period;

use crate::generator::Targets;

hob_service::section! {
    /// Load tests: whom they may be aimed at, and how this node takes part in them.
    pub struct Config("load") {
        /// Hosts that may be tested beside this machine, as URLs name them.
        pub hosts: Vec<String> = Vec::new(),
        /// The most requests per second of a run to such a host.
        pub most_rate: u32 = 1000,
        /// The most users of a run at a time.
        pub most_users: u32 = 10_000,
        /// How many runs this node works on at a time; 0 for a node that generates no load.
        pub runs_at_once: u32 = 1,
        /// Threads of the generator; 0 for one per core, but one.
        pub threads: u32 = 0,
        /// How long a run waits for the runners that it asked for before it starts with those that came.
        pub gather: Period = Period::from_secs(3),
        /// A runner that was not heard of for so long is lost, and its run with it.
        pub lease: Period = Period::from_secs(5),
        /// A waiting run gains one priority each time that it has waited for so long.
        pub ageing: Period = Period::from_secs(60),
        /// How long the measurements of a run are kept.
        pub keep: Period = Period::from_days(30),
    }
}

impl Config {
    pub(crate) fn targets(&self) -> Targets {
        Targets { hosts: self.hosts.clone(), most_rate: f64::from(self.most_rate) }
    }

    pub(crate) fn generator_threads(&self) -> u32 {
        if self.threads > 0 {
            return self.threads.min(64);
        }
        // The server that runs beside it wants some time, too.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        u32::try_from(cores.saturating_sub(1).clamp(1, 64)).unwrap_or(1)
    }
}
