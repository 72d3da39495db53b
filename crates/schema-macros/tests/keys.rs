//! Keys made from the project's own schema files.

use std::time::Duration;

use hob_schema::Layout;

mod chat {
    hob_schema_macros::keys!("schemas/chat.toml");
}
mod gateway {
    hob_schema_macros::keys!("schemas/gateway.toml");
}
mod load {
    hob_schema_macros::keys!("schemas/load.toml");
}
mod pipeline {
    hob_schema_macros::keys!("schemas/pipeline.toml");
}
mod uptime {
    hob_schema_macros::keys!("schemas/uptime.toml");
}

#[test]
fn constructor_takes_the_ids_of_its_pattern() {
    let keys = chat::Keys::new(Layout::Plain);
    let (user, conversation) = (chat::UserId::new("u1").unwrap(), chat::ConversationId::new("a:b").unwrap());
    assert_eq!(keys.typing(&conversation, &user).to_string(), "typing:a%3Ab:u1");
    assert_eq!(keys.unread_total(&user).to_string(), "unread:u1:total");
}

#[test]
fn only_the_tagged_layout_puts_braces_around_the_entity() {
    let run = pipeline::DagRunId::new("manual_2024-09-17T14:30:00+00:00").unwrap();
    let task = pipeline::TaskId::new("fetch").unwrap();
    let plain = pipeline::Keys::new(Layout::Plain);
    let tagged = pipeline::Keys::new(Layout::Tagged);
    let key = "courtlistener:task_start:manual_2024-09-17T14:30:00+00:00:fetch";
    assert_eq!(plain.task_start(&run, &task).to_string(), key);
    let key = "courtlistener:task_start:{manual_2024-09-17T14:30:00+00:00}:fetch";
    assert_eq!(tagged.task_start(&run, &task).to_string(), key);
}

/// U1
#[test]
fn keys_of_a_monitor_have_the_shard_of_its_schedule() {
    let monitor = uptime::MonitorId::new("m1").unwrap();
    let tagged = uptime::Keys::new(Layout::Tagged);
    let shard = tagged.space().shard_of(monitor.as_str());
    assert_eq!(tagged.schedule(shard).to_string(), format!("monitor:schedule:{{{}}}", shard.number()));
    assert_eq!(tagged.status(&monitor).to_string(), format!("monitor:status:{{{}}}:m1", shard.number()));
    let plain = uptime::Keys::new(Layout::Plain);
    let only: Vec<String> = plain.space().shards().map(|shard| plain.schedule(shard).to_string()).collect();
    assert_eq!(only, ["monitor:schedule"]);
}

/// G18
#[test]
fn endpoint_has_both_documented_encodings() {
    let keys = gateway::Keys::new(Layout::Plain);
    let shard = keys.space().shards().next().unwrap();
    let endpoint = gateway::Endpoint::new("GET /api/users").unwrap();
    assert_eq!(
        keys.requests_by_endpoint(&endpoint, shard).to_string(),
        "ha:requests:endpoint:GET /api/users"
    );
    assert_eq!(keys.response_times(&endpoint, shard).to_string(), "ha:response_times:GET_/api/users");
}

#[test]
fn limits_are_constants_and_methods_where_the_environment_sets_them() {
    assert_eq!(chat::Keys::RECENT_MAX_LEN, 100);
    assert_eq!(chat::Keys::MESSAGE_RATE_TTL_MAX, Duration::from_secs(60));
    assert_eq!(uptime::Keys::STATUS_TTL_MIN, Duration::from_secs(300));
    let env = |name: &str| match name {
        "MESSAGE_RATE_WINDOW" => Some("1500".to_owned()),
        "CHAT_KEY_PREFIX" => Some("c1:".to_owned()),
        "NOTIFICATION_REDIS_CHANNEL" => Some("news".to_owned()),
        _ => None,
    };
    let keys = chat::Keys::from_env(Layout::Plain, &env).unwrap();
    assert_eq!(keys.message_rate_ttl(), Duration::from_millis(1500));
    assert_eq!(keys.last_seen(&chat::UserId::new("u").unwrap()).to_string(), "c1:lastseen:u");
    assert_eq!(keys.message_created_channel(), "news");
    assert_eq!(keys.user_online_channel(), "c1:events:user.online");
    assert!(chat::Keys::from_env(Layout::Plain, &|_| Some("{x}".to_owned())).is_err());
}

#[test]
fn ids_are_checked_when_they_are_made() {
    assert!(chat::ConversationId::new("total").is_err());
    assert!(chat::UserId::new("").is_err());
    assert!(gateway::Hour::new(1_672_531_200_001_u64).is_err());
    assert!(gateway::Hour::new(1_672_531_200_000_u64).is_ok());
    assert_eq!(load::MetricType::ALL.len(), 4);
    assert_eq!(load::MetricType::ResponseTime.as_str(), "response_time");
}
