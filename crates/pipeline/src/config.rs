//! What an operator may set.

use std::path::PathBuf;

use hob_service::{Period, section};

section! {
    /// Pipelines: quota-bound, resumable fetching with many workers.
    pub struct Config("pipeline") {
        /// The quota whose calls the public counters `rate_limit:<hour>` and `counter:<hour>` show.
        pub public_quota: String = "courtlistener".to_owned(),
        /// The folder that plans read files from and write files to.
        pub folder: PathBuf = PathBuf::from("hob-data/pipelines"),
        /// The most items that a node holds of one run.
        pub batch: u32 = 200,
        /// How long a node may be silent before others take over its items.
        pub lease: Period = Period::from_secs(8),
        /// The most runs that a node works on at a time.
        pub runs: u32 = 32,
        /// How long the call log is kept, at least: the longest window counts, too.
        pub keep_calls: Period = Period::from_days(2),
        /// How long archived runs are kept.
        pub keep_archived: Period = Period::from_days(90),
    }
}
