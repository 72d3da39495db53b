//! The runtime of a test.

/// Runs the future of a test. Called by `every_database!` and the macros of `hob-fixtures`.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap_or_else(|error| panic!("cannot start a runtime: {error}")).block_on(test);
}
