//! The `[pipeline]` section of `hob.toml`.

use std::path::PathBuf;

use hob_service::config::Mistakes;
use hob_service::{Period, section};

use crate::quota::{MAX_CALLS, QuotaName};

section! {
    /// Pipelines fetch items from APIs with call quotas, resumably and with many workers.
    pub struct Config("pipeline") {
        /// The quota that the public counters `rate_limit:<hour>` and `counter:<hour>` count.
        pub public_quota: String = "courtlistener".to_owned(),
        /// Calls per hour of the public quota, unless a plan or the API defines its windows.
        pub call_limit_per_hour: u32 = 5000 => 1..=MAX_CALLS,
        /// Calls that stay unused in each hour of the public quota, unless a plan or the API defines its windows.
        pub safety_buffer: u32 = 25 => 0..=MAX_CALLS - 1,
        /// The folder for the files that plans read and write.
        pub folder: PathBuf = PathBuf::from("hob-data/pipelines"),
        /// Maximum number of items that a node claims of one run.
        pub batch_size: u32 = 200 => 1..,
        /// Lease on claimed items. Other nodes take them over when it expires.
        pub lease: Period = Period::from_secs(8) => Period::from_millis(100)..,
        /// Maximum number of runs that a node executes at the same time.
        pub max_concurrent_runs: u32 = 32,
        /// How long the call log is kept, or longer if a quota has a longer window.
        pub keep_calls: Period = Period::from_days(2) => Period::from_secs(1)..,
        /// How long archived runs are kept before they are deleted.
        pub keep_archived: Period = Period::from_days(90) => Period::from_secs(1)..,
    }
    check check;
}

fn check(config: &Config, mistakes: &mut Mistakes) {
    if !config.public_quota.is_empty() {
        mistakes.check("public_quota", config.public_quota.parse::<QuotaName>());
        let (limit, buffer) = (config.call_limit_per_hour, config.safety_buffer);
        // Values outside of their ranges are separate mistakes.
        if limit > 0 && buffer < MAX_CALLS && buffer >= limit {
            mistakes.add("safety_buffer", format!("must be less than call_limit_per_hour, which is {limit}"));
        }
    }
    if config.folder.as_os_str().is_empty() {
        mistakes.add("folder", "must not be empty; `.` is the current folder");
    }
}
