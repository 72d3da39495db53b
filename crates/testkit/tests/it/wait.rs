//! Waiting.

use std::time::Duration;

use hob_testkit::{LIMIT, wait_for};

async fn panic_message(waiting: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(waiting).await.unwrap_err().into_panic();
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn wait_returns_the_value_of_the_condition() {
    let mut calls = 0;
    let value = wait_for("the third call", LIMIT, async || {
        calls += 1;
        (calls == 3).then_some("here")
    });
    assert_eq!(value.await, "here");
    assert_eq!(calls, 3);
}

#[tokio::test]
async fn timeout_reports_the_last_result() {
    let limit = Duration::from_millis(20);
    let message =
        panic_message(async move { wait_for("a value", limit, async || Err::<(), _>("none")).await }).await;
    assert!(message.contains("tests/it/wait.rs"), "{message}");
    assert!(message.ends_with(r#"waited 20ms for a value; last seen: "none""#), "{message}");
}

#[tokio::test]
async fn condition_that_hangs_times_out() {
    let limit = Duration::from_millis(20);
    let message =
        panic_message(async move { wait_for("a reply", limit, std::future::pending::<bool>).await }).await;
    assert!(message.ends_with("waited 20ms for a reply; last seen: no result"), "{message}");
}
