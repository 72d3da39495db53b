//! Waiting.

use std::time::Duration;

use hob_testkit::{LIMIT, wait_for};

async fn panic_message(waiting: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(waiting).await.unwrap_err().into_panic();
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn waiting_ends_with_the_value_once_the_condition_holds() {
    let mut asked = 0;
    let value = wait_for("the third time", LIMIT, async || {
        asked += 1;
        (asked == 3).then_some("here")
    });
    assert_eq!(value.await, "here");
    assert_eq!(asked, 3);
}

#[tokio::test]
async fn waiting_in_vain_tells_what_for_and_what_was_seen() {
    let limit = Duration::from_millis(20);
    let message =
        panic_message(async move { wait_for("the moon", limit, async || Err::<(), _>("clouds")).await })
            .await;
    assert!(message.contains("tests/it/wait.rs"), "{message}");
    assert!(message.ends_with(r#"waited 20ms for the moon; last seen: "clouds""#), "{message}");
}

#[tokio::test]
async fn a_condition_that_hangs_is_given_up() {
    let limit = Duration::from_millis(20);
    let message =
        panic_message(async move { wait_for("an echo", limit, std::future::pending::<bool>).await }).await;
    assert!(message.ends_with("waited 20ms for an echo; last seen: no answer"), "{message}");
}
