//! The amount of work of a fuzz or stress test.

/// `ci` in a normal run, `full` under `cargo xtask test --full` (which sets `HOB_TEST_BUDGET=full`).
pub fn budget<T>(ci: T, full: T) -> T {
    if std::env::var_os("HOB_TEST_BUDGET").is_some_and(|budget| budget == "full") { full } else { ci }
}
