//! The runtime of a test, and of a node that a test kills.

use std::ops::Deref;
use std::thread;

use tokio::runtime::{Builder, Runtime};

use crate::wait::LIMIT;

/// Runs the future of a test. Called by `every_database!` and the macros of `hob-fixtures`.
pub fn run(test: impl Future<Output = ()>) {
    runtime(2).block_on(test);
}

/// A node in the test process, with its own runtime. When it is killed or dropped, its tasks end without any cleanup, as
/// if its process were killed. Derefs to the value of the node, such as a service.
///
/// Connections that were opened before [`KillableNode::start`] belong to the runtime of the test, and stay open.
#[derive(Debug)]
pub struct KillableNode<S> {
    service: S,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl<S: Send + 'static> KillableNode<S> {
    /// Runs `starting` on the runtime of the node.
    pub async fn start(starting: impl Future<Output = S> + Send + 'static) -> Self {
        let runtime = runtime(1);
        match runtime.spawn(starting).await {
            Ok(service) => Self { service, runtime: Some(runtime) },
            Err(error) => {
                runtime.shutdown_background();
                panic!("the node did not start: {error}")
            }
        }
    }

    pub fn kill(self) {
        drop(self);
    }
}

impl<S> Deref for KillableNode<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.service
    }
}

impl<S> Drop for KillableNode<S> {
    /// Waits for a step that a task is in the middle of, so that nothing of the node happens later. On another thread,
    /// because async code must not wait for a runtime to end.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let _ = thread::spawn(move || runtime.shutdown_timeout(LIMIT)).join();
        }
    }
}

fn runtime(threads: usize) -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.unwrap_or_else(|error| panic!("cannot start a runtime: {error}"))
}
