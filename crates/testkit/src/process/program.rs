//! Finds installed programs, or names the missing package.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The first of `names` on the PATH.
pub(crate) fn find(names: &[&str], package: &str) -> PathBuf {
    names.iter().find_map(|name| on_path(name)).unwrap_or_else(|| missing(names[0], package))
}

/// A program of the PostgreSQL server: on the PATH, or in the folder of the newest version, where Debian installs it.
pub(crate) fn find_postgres(name: &str) -> PathBuf {
    let debian = || {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        let newest = versions.max_by_key(|folder| folder.file_name().to_str()?.parse::<u32>().ok())?;
        Some(newest.path().join("bin").join(name)).filter(|path| path.is_file())
    };
    on_path(name).or_else(debian).unwrap_or_else(|| missing(name, "postgresql"))
}

/// Panics with the name of the missing package.
pub(crate) fn missing(what: &str, package: &str) -> ! {
    panic!("{what} is missing: run `cargo xtask test`, or install the Debian package {package}");
}

/// The folder for programs that `cargo xtask test` installs, and for files that are reused between test runs.
pub(crate) fn cache() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/testkit"))
}

fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    #[should_panic(
        expected = "no-such-server is missing: run `cargo xtask test`, or install the Debian package some-package"
    )]
    fn missing_program_is_named_with_its_package() {
        find(&["no-such-server"], "some-package");
    }

    #[test]
    fn first_existing_program_is_found() {
        assert!(find(&["no-such-server", "sh"], "dash").ends_with("sh"));
    }
}
