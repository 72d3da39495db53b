//! Sets up a machine for the tests: finds missing programs, and installs them if `apt-get` exists.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{cargo, clients, step};

/// Which tests will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of them.
    Whole,
    /// All except those that need a browser.
    WithoutBrowser,
}

/// A program that the tests need, and its Debian packages.
struct Need {
    name: &'static str,
    present: fn() -> bool,
    packages: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need {
        name: "Redis (redis-server, redis-cli, redis-benchmark)",
        present: || ["redis-server", "redis-cli", "redis-benchmark"].iter().all(|name| on_path(name)),
        packages: &["redis-server", "redis-tools"],
    },
    Need {
        name: "PostgreSQL (initdb, postgres, psql)",
        present: || (on_path("initdb") || debian_postgres()) && on_path("psql"),
        packages: &["postgresql", "postgresql-client"],
    },
    Need {
        name: "Python 3 with venv and pip",
        present: || step::succeeds(Command::new("python3").args(["-c", "import venv, ensurepip"])),
        packages: &["python3", "python3-venv"],
    },
    Need {
        name: "faketime, which sets the clock of a process",
        present: || on_path("faketime"),
        packages: &["faketime"],
    },
    Need {
        name: "promtool, which checks metrics",
        present: || on_path("promtool"),
        packages: &["prometheus"],
    },
    Need {
        name: "Go, which compiles generated keys",
        present: || on_path("go") && on_path("gofmt"),
        packages: &["golang-go"],
    },
    Need {
        name: "Java with JUnit 5",
        present: || on_path("javac") && fs::exists("/usr/share/java/junit-jupiter-api.jar").unwrap_or(false),
        packages: &["default-jdk-headless", "junit5"],
    },
    Need {
        name: "Ruby with Sidekiq and the cache of Rails",
        present: || {
            step::succeeds(Command::new("ruby").args(["-rsidekiq", "-ractive_support", "-rredis", "-e", ""]))
        },
        packages: &["ruby", "ruby-sidekiq", "ruby-activesupport", "ruby-redis"],
    },
    Need {
        name: "PHP with Laravel",
        present: || {
            let code = "exit(extension_loaded('redis') ? 0 : 1);";
            let laravel = "/usr/share/php/Illuminate/autoload.php";
            fs::exists(laravel).unwrap_or(false) && step::succeeds(Command::new("php").args(["-r", code]))
        },
        packages: &["php-cli", "php-redis", "php-laravel-framework"],
    },
    Need { name: "Node.js with npm", present: || runs("node") && runs("npm"), packages: &["nodejs", "npm"] },
];

const BROWSER: Need = Need {
    name: "Chromium with chromedriver",
    present: || runs("chromedriver") && chromium(),
    packages: &["chromium", "chromium-driver"],
};

/// What pictures need: without it, reactions in the chat are empty boxes.
const EMOJI: Need = Need {
    name: "a font with emoji",
    present: || {
        Command::new("fc-list").arg(":charset=1f44d").output().is_ok_and(|fonts| !fonts.stdout.is_empty())
    },
    packages: &["fonts-noto-color-emoji"],
};

/// What builds a static program.
const STATIC: Need =
    Need { name: "the C compiler of musl", present: || on_path("musl-gcc"), packages: &["musl-tools"] };

/// What runs the packages of a release.
const CONTAINERS: &[Need] = &[
    Need {
        name: "mmdebstrap, which makes a Debian system",
        present: || on_path("mmdebstrap"),
        packages: &["mmdebstrap"],
    },
    Need {
        name: "systemd-nspawn, which boots it",
        present: || on_path("systemd-nspawn"),
        packages: &["systemd-container"],
    },
    Need {
        name: "runc, skopeo and umoci, which run an image",
        present: || ["runc", "skopeo", "umoci"].iter().all(|name| on_path(name)),
        packages: &["runc", "skopeo", "umoci"],
    },
];

/// Installs what is missing to build a static program for `target`.
pub(crate) fn static_target(target: &str) -> Result<()> {
    add_missing(&[STATIC])?;
    add_rust_target(target)
}

fn add_rust_target(target: &str) -> Result<()> {
    if step::succeeds(Command::new("rustup").arg("--version")) {
        step::run(target, Command::new("rustup").args(["target", "add", target]))?;
    }
    Ok(())
}

/// The same for another kind of machine, with the names of its compiler and of an emulator that starts the program.
pub(crate) fn cross_target(target: &str, (name, gcc, emulator): (&str, &str, &str)) -> Result<()> {
    let dashed = name.replace('_', "-");
    if !on_path(gcc) || !on_path(emulator) {
        install_packages(
            &format!("{gcc} and {emulator}"),
            &[&format!("gcc-{dashed}-linux-gnu"), "qemu-user-static"],
        )?;
    }
    add_rust_target(target)
}

/// Installs what is missing to run the packages of a release.
pub(crate) fn containers() -> Result<()> {
    add_missing(CONTAINERS)
}

/// Installs what is missing to take screenshots.
pub(crate) fn pictures() -> Result<()> {
    add_missing(&[EMOJI])
}

fn add_missing(needs: &[Need]) -> Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.present)()).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Installs missing programs, and returns the client libraries for the tests.
pub(crate) fn run(extent: Extent) -> Result<clients::Clients> {
    add_rust_components()?;
    let mut missing: Vec<&Need> = NEEDS.iter().filter(|need| !(need.present)()).collect();
    let lacks_browser = extent == Extent::Whole && !(BROWSER.present)();
    if lacks_browser && !chromium_is_a_snap() {
        missing.push(&BROWSER);
    }
    if !missing.is_empty() {
        install(&missing)?;
    }
    if lacks_browser && chromium_is_a_snap() {
        bail!(
            "missing: {}; Ubuntu packages Chromium only as a snap, which cannot use temporary folders; install Google \
             Chrome and the chromedriver of the same version, or skip browser tests with --quick",
            BROWSER.name
        );
    }
    clients::install()
}

/// A minimal Rust installation has no rustfmt and no clippy.
fn add_rust_components() -> Result<()> {
    for (component, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if step::succeeds(cargo().args([subcommand, "--version"])) {
            continue;
        }
        if !on_path("rustup") {
            bail!("missing: cargo {subcommand}; install {component} for this Rust toolchain");
        }
        step::run(component, Command::new("rustup").args(["component", "add", component]))?;
    }
    Ok(())
}

fn install(missing: &[&Need]) -> Result<()> {
    let names = missing.iter().map(|need| need.name).collect::<Vec<_>>().join(", ");
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    install_packages(&names, &packages)?;
    match missing.iter().find(|need| !(need.present)()) {
        Some(need) => {
            bail!("{} is still missing after apt-get installed {}", need.name, need.packages.join(" "))
        }
        None => Ok(()),
    }
}

fn install_packages(names: &str, packages: &[&str]) -> Result<()> {
    let packages_line = packages.join(" ");
    if !on_path("apt-get") {
        bail!("missing: {names}; install it (Debian packages: {packages_line}) and run this command again");
    }
    let Some(mut shell) = root_shell() else {
        bail!("missing: {names}; run: sudo apt-get install --no-install-recommends {packages_line}");
    };
    step::run(
        &format!("apt-get install {packages_line}"),
        shell.args(["-c", include_str!("apt.sh"), "apt"]).args(packages),
    )
}

/// A root shell, if this user can have one without a password prompt.
fn root_shell() -> Option<Command> {
    if Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n") {
        return Some(Command::new("sh"));
    }
    step::succeeds(Command::new("sudo").args(["-n", "true"])).then(|| {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "sh"]);
        sudo
    })
}

fn on_path(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

fn runs(name: &str) -> bool {
    step::succeeds(Command::new(name).arg("--version"))
}

/// Debian installs the server outside of the PATH, in a folder per version.
fn debian_postgres() -> bool {
    fs::read_dir("/usr/lib/postgresql")
        .is_ok_and(|versions| versions.flatten().any(|version| version.path().join("bin/initdb").is_file()))
}

/// Runs `--version`, because Ubuntu's `chromium-browser` is a script that only recommends the snap.
fn chromium() -> bool {
    ["chromium", "chromium-browser", "google-chrome"].iter().any(|name| runs(name))
}

fn chromium_is_a_snap() -> bool {
    fs::read_to_string("/etc/os-release").is_ok_and(|release| release.lines().any(|line| line == "ID=ubuntu"))
}
