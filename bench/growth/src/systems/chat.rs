//! Messages to more and more conversations, and to conversations with more and more members.

use anyhow::Result;
use serde_json::{Value, json};

use crate::deployment::{Cost, Deployment};

/// Messages that are measured.
const MESSAGES: u64 = 2_000;

pub(crate) async fn measure(conversations: u64, members: u64) -> Result<Cost> {
    let deployment = Deployment::start("chat", "[chat]\nmessage_rate_limit = 1000000\n")?;
    let opened = (0..conversations).map(|number| {
        let others: Vec<String> = (1..members).map(|member| user(number, member)).collect();
        let body = json!({
            "id": room(number), "title": "Room", "created_by": user(number, 0), "members": others,
        });
        ("/api/v1/chat/conversations".to_owned(), body)
    });
    deployment.post_all(opened).await?;
    deployment.post_all((0..MESSAGES / 4).map(|number| message(number, conversations))).await?;
    let work = deployment.work()?;
    deployment.post_all((0..MESSAGES).map(|number| message(number, conversations))).await?;
    // The unread counters of the last messages are written after them.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    work.per_unit(MESSAGES)
}

fn message(number: u64, conversations: u64) -> (String, Value) {
    let conversation = number * 7_919 % conversations;
    let path = format!("/api/v1/chat/conversations/{}/messages", room(conversation));
    (path, json!({ "sender_id": user(conversation, 0), "content": format!("Message {number}") }))
}

fn room(number: u64) -> String {
    format!("room{number}")
}

fn user(conversation: u64, member: u64) -> String {
    format!("user{conversation}-{member}")
}
