//! Redis clients that nobody here wrote, as installed by `cargo xtask test`.

use std::env;
use std::path::PathBuf;

use crate::program;

/// A Python with redis-py.
pub fn python() -> PathBuf {
    installed("HOB_TEST_PYTHON", "python/bin/python", "a Python with redis-py")
}

/// A `node_modules` with ioredis and node-redis, to be given to `node` as `NODE_PATH`.
pub fn node_modules() -> PathBuf {
    installed("HOB_TEST_NODE_MODULES", "node/node_modules", "a node_modules with ioredis")
}

fn installed(variable: &str, place: &str, what: &str) -> PathBuf {
    let path = env::var_os(variable).map_or_else(|| program::store().join(place), PathBuf::from);
    assert!(
        path.exists(),
        "{what} is missing at {}: run `cargo xtask test`, or set {variable}",
        path.display()
    );
    path
}
