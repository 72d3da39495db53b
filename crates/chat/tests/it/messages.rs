//! Messages: sent once, in order; and the cache of recent messages (C7).

use hob_chat::keys::ConversationId;
use hob_chat::{Attachment, Chat, Config, MessageRange, Refusal};
use hob_fixtures::every_service;
use hob_service::ServiceContext;
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};

use crate::harness::{NEEDS, config, done, keys, message, open, room, say, start, user};

async fn contents(chat: &Chat, id: &ConversationId, range: MessageRange, limit: u16) -> Vec<String> {
    let messages = done(chat.messages(id, Some(&user("anna")), range, limit).await);
    messages.into_iter().map(|message| message.content).collect()
}

async fn cached(context: &ServiceContext, id: &ConversationId) -> Vec<String> {
    let list = cmd("LRANGE").arg(keys(context).recent(id).as_bytes()).arg(0).arg(-1).take();
    context.store.run(list).await.unwrap()
}

every_service! {
    NEEDS;

    async fn repeated_send_returns_the_first_message(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut new = message(&id, "anna", "once");
        new.client_id = Some("phone-1".into());
        let first = done(chat.send(&new).await);
        new.content = "something else".into();
        let (one, two) = tokio::join!(chat.send(&new), chat.send(&new));
        assert_eq!((done(one), done(two)), (first.clone(), first.clone()));
        let other = crate::harness::say(&chat, &id, "bert", "next").await;
        assert_eq!((first.number, other.number, other.sequence), (1, 2, first.sequence + 1));
    }

    async fn concurrent_sends_leave_no_gap_in_the_sequence(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let sends = (0..20).map(|n| {
            let (chat, id) = (chat.clone(), id.clone());
            async move { say(&chat, &id, if n % 2 == 0 { "anna" } else { "bert" }, &n.to_string()).await.sequence }
        });
        let mut sequences = futures_util::future::join_all(sends).await;
        sequences.sort_unstable();
        assert_eq!(sequences, (3..23).collect::<Vec<u64>>());
    }

    /// C7: newest first, in the documented form, and updated event by event.
    async fn recent_messages_are_cached_as_documented(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        say(&chat, &id, "anna", "one").await;
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 10).await, ["one"]);
        let two = say(&chat, &id, "bert", "two").await;
        wait_for("the cache to be updated", LIMIT, async || cached(&context, &id).await.len() == 2).await;
        let newest: serde_json::Value = serde_json::from_str(&cached(&context, &id).await[0]).unwrap();
        assert_eq!((newest["id"].as_str(), newest["content"].as_str()), (Some(two.id.as_str()), Some("two")));
        assert_eq!(newest["senderId"], "bert");
        assert!(newest["timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 10).await, ["one", "two"]);
        let ttl: i64 = context.store.run(cmd("PTTL").arg(keys(&context).recent(&id).as_bytes()).take()).await.unwrap();
        assert!(ttl > 0 && ttl <= 3_600_000, "{ttl}");
    }

    /// C7: other programs find the newest messages from the first message on, and as they are after each change.
    async fn recent_messages_are_cached_without_a_reader(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let holds = async |expected: &[&str]| {
            wait_for("the cache to hold the messages", LIMIT, async || {
                let messages = cached(&context, &id).await;
                let message = |text: &String| serde_json::from_str::<serde_json::Value>(text).unwrap()["content"].clone();
                let contents: Vec<_> = messages.iter().map(message).collect();
                if contents == expected { Ok(()) } else { Err(contents) }
            }).await;
        };
        let first = say(&chat, &id, "anna", "one").await;
        holds(&["one"]).await;
        let second = say(&chat, &id, "bert", r#"two {"id":"#).await;
        say(&chat, &id, "anna", "three").await;
        holds(&["three", r#"two {"id":"#, "one"]).await;
        done(chat.edit(&id, &second.id, &user("bert"), "second").await);
        holds(&["three", "second", "one"]).await;
        done(chat.delete(&id, &first.id, &user("anna")).await);
        holds(&["three", "second"]).await;
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 10).await, ["second", "three"]);
        // Redis has lost the cache: the next change restores it.
        context.test_store().flush_all().await;
        say(&chat, &id, "anna", "four").await;
        holds(&["four", "three", "second"]).await;
        let ttl: i64 = context.store.run(cmd("PTTL").arg(keys(&context).recent(&id).as_bytes()).take()).await.unwrap();
        assert!(ttl > 0 && ttl <= 3_600_000, "{ttl}");
    }

    /// C7: the longest message fits into the bounds that the schema declares for the cache.
    async fn longest_message_fits_into_the_cache(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        // JSON takes six bytes for this character.
        let mut longest = message(&id, "anna", &"\u{1}".repeat(4_096));
        longest.client_id = Some("\u{1}".repeat(128));
        let attachment = Attachment {
            url: format!("https://files.example/{}", "a".repeat(2_026)),
            name: "\\".repeat(255),
            media_type: format!("text/{}", "x".repeat(122)),
            size: Some((1 << 53) - 1),
        };
        longest.attachments = vec![attachment; 8];
        let users: Vec<_> = (10..30).map(|n| user(&format!("{}{n}", "\\".repeat(126)))).collect();
        for mentioned in &users {
            done(chat.add_member(&id, mentioned, None).await);
        }
        longest.mentions = users;
        done(chat.send(&longest).await);
        let item = wait_for("the message to be cached", LIMIT, async || cached(&context, &id).await.pop()).await;
        assert!((48 * 1_024..=64 * 1_024).contains(&item.len()), "{}", item.len());
        let shown = include_str!("../../../../schemas/chat.toml").lines().find(|line| line.contains(r#"json = "message","#));
        assert!(shown.is_some_and(|line| line.contains("64 KiB")), "{shown:?}");
    }

    /// C7: a cache that lost a message or missed an event is not served.
    async fn incomplete_cache_is_not_served(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        for n in 1..=3 {
            say(&chat, &id, "bert", &n.to_string()).await;
        }
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 2).await, ["2", "3"]);
        let pop = cmd("RPOP").arg(keys(&context).recent(&id).as_bytes()).take();
        context.store.run::<String>(pop).await.unwrap();
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 10).await, ["1", "2", "3"]);
        context.test_store().flush_all().await;
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 10).await, ["1", "2", "3"]);
        assert_eq!(contents(&chat, &id, MessageRange::After(3), 1).await, ["2"]);
        assert_eq!(contents(&chat, &id, MessageRange::Before(5), 5).await, ["1", "2"]);
    }

    /// C7: edits and deletes are visible at once, and deleted content is erased from the database.
    async fn edits_and_deletes_are_visible_at_once(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let first = say(&chat, &id, "anna", "a secret").await;
        let second = say(&chat, &id, "bert", "hello").await;
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 10).await, ["a secret", "hello"]);
        assert_eq!(chat.edit(&id, &second.id, &user("anna"), "x").await.unwrap(), Err(Refusal::NotSender));
        let edited = done(chat.edit(&id, &second.id, &user("bert"), "hello again").await);
        assert!(edited.edited_at.is_some());
        done(chat.delete(&id, &first.id, &user("anna")).await);
        assert_eq!(contents(&chat, &id, MessageRange::Newest, 10).await, ["hello again"]);
        assert_eq!(chat.edit(&id, &first.id, &user("anna"), "x").await.unwrap(), Err(Refusal::MessageNotFound));
        let payloads: Vec<(String,)> = hob_database::Read::all(&context.database,
            hob_database::sql("SELECT payload FROM chat_event ORDER BY sequence")).await.unwrap();
        assert!(payloads.iter().all(|(payload,)| !payload.contains("a secret")), "{payloads:?}");
        assert_eq!(payloads.len(), 6, "each change is a separate event");
    }

    /// C7: the cache holds the newest hundred messages; older ones come from the database.
    async fn more_than_a_hundred_messages_are_read_in_pages(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna"]).await;
        for n in 0..105 {
            say(&chat, &id, "anna", &n.to_string()).await;
            if n == 50 {
                contents(&chat, &id, MessageRange::Newest, 1).await;
            }
        }
        wait_for("the list to be trimmed", LIMIT, async || {
            contents(&chat, &id, MessageRange::Newest, 100).await;
            cached(&context, &id).await.len() == 100
        }).await;
        let newest = contents(&chat, &id, MessageRange::Newest, 100).await;
        assert_eq!((newest.first().unwrap().as_str(), newest.last().unwrap().as_str()), ("5", "104"));
        assert_eq!(contents(&chat, &id, MessageRange::Before(7), 500).await, ["0", "1", "2", "3", "4"]);
        assert_eq!(contents(&chat, &id, MessageRange::After(0), 500).await.len(), 105);
    }

    /// C6: twenty messages per minute, counted in the documented key, which always has a TTL.
    async fn message_rate_limit_is_enforced(context: TestContext) {
        let chat = start(context.context(), Config { message_rate_limit: 3, ..config() }).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut sent = 0;
        let retry_after = loop {
            match chat.send(&message(&id, "anna", &sent.to_string())).await.unwrap() {
                Ok(_) => sent += 1,
                Err(Refusal::RateLimited { retry_after }) => break retry_after,
                Err(other) => panic!("{other:?}"),
            }
            // A store that does not answer in time allows the message, so there can be more than three.
            assert!(sent < 100, "the limit is not enforced");
        };
        assert!(sent >= 3 && !retry_after.is_zero(), "{sent} messages, then {retry_after:?}");
        say(&chat, &id, "bert", "others may").await;
        let key = keys(&context).message_rate(&user("anna"));
        assert_eq!(crate::harness::get(&context, &key).await.as_deref(), Some("3"));
        let ttl: i64 = context.store.run(cmd("PTTL").arg(key.as_bytes()).take()).await.unwrap();
        assert!(ttl > 0 && ttl <= 60_000, "{ttl}");
    }

    async fn invalid_message_is_refused_and_takes_no_number(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        for content in ["", "   ", &"x".repeat(4097), "a\0b"] {
            let refused = chat.send(&message(&id, "anna", content)).await.unwrap();
            assert!(matches!(refused, Err(Refusal::InvalidField { field: "content", .. })), "{content:?}");
        }
        assert_eq!(say(&chat, &id, "anna", "fine").await.number, 1);
    }
}
