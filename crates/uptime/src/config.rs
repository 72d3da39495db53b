//! The `[uptime]` section of `hob.toml`.

use hob_house::Period;

hob_house::section! {
    /// Uptime: checks, incidents, alerts, the status page.
    pub struct Config("uptime") {
        /// How many checks this node runs at a time. 0 runs none: the node only shows what others found.
        pub concurrency: u32 = 512,
        /// How long after its timeout a check may still be recorded before another worker takes it over.
        pub grace: Period = Period::from_secs(5),
        /// How long every single result is kept.
        pub keep_results: Period = Period::from_days(7),
        /// How long hourly summaries are kept.
        pub keep_hours: Period = Period::from_days(100),
        /// How long daily summaries and closed incidents are kept.
        pub keep_days: Period = Period::from_days(730),
        /// Addresses, as `host:port`, of which at least one can be reached while this node's own network is well.
        /// While none can, its failed checks are not counted. Without any, it only asks whether there is a route.
        pub anchors: Vec<String> = Vec::new(),
        /// What the public status page is called.
        pub status_title: String = "Status".to_owned(),
    }
}
