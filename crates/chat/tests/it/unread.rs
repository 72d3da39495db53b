//! Unread counts (C8 C9): the counters in Redis always agree with the database.

use hob_chat::keys::{ConversationId, UserId};
use hob_chat::{Chat, ReceiptKind};
use hob_fixtures::every_service;
use hob_service::ServiceContext;
use hob_testkit::{LIMIT, wait_for};

use crate::harness::{
    NEEDS, done, get, keys, open, room, say, short_lease, start, user, wait_for_heartbeats,
};

/// Waits until Redis agrees with the database, and returns the total.
async fn agreed_total(context: &ServiceContext, chat: &Chat, who: &UserId) -> u64 {
    let keys = keys(context);
    wait_for(format_args!("the counters of {who} to agree with the database"), LIMIT, async || {
        let (counts, total) = chat.unread(who).await.unwrap();
        let mut compared = Vec::new();
        for count in &counts {
            let stored = get(context, &keys.unread(who, &count.conversation_id)).await;
            compared.push((stored.map_or(0, |text| text.parse().unwrap()), count.unread));
        }
        let stored: u64 = get(context, &keys.unread_total(who)).await.map_or(0, |text| text.parse().unwrap());
        let agree = compared.iter().all(|(stored, counted)| stored == counted) && stored == total;
        if agree { Ok(total) } else { Err((compared, stored, total)) }
    })
    .await
}

/// Waits until Redis has this total. Does not read the counts with `Chat::unread`, which writes them again.
async fn wait_for_total(context: &ServiceContext, who: &str, total: u64) {
    let key = keys(context).unread_total(&user(who));
    wait_for(format_args!("{total} unread messages of {who}"), LIMIT, async || {
        let stored = get(context, &key).await.map_or(0, |text| text.parse::<u64>().unwrap());
        if stored == total { Ok(()) } else { Err(stored) }
    })
    .await;
}

async fn read(chat: &Chat, id: &ConversationId, who: &UserId, up_to: u64) {
    done(chat.record_receipt(id, who, up_to, ReceiptKind::Read).await);
}

every_service! {
    NEEDS;

    /// C8 C9: messages of other members after the read pointer that are not deleted, and their sum.
    async fn unread_counts_messages_of_others_after_the_read_pointer(context: TestContext) {
        let chat = open(&context).await;
        let (one, two) = (room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert"]).await);
        let anna = user("anna");
        let mut last = 0;
        for n in 0..3 {
            last = say(&chat, &one, "bert", &n.to_string()).await.sequence;
            say(&chat, &one, "anna", "own messages do not count").await;
        }
        let deleted = say(&chat, &two, "bert", "deleted in a moment").await;
        say(&chat, &two, "bert", "stays").await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 5);
        done(chat.delete(&two, &deleted.id, &user("bert")).await);
        assert_eq!(agreed_total(&context, &chat, &anna).await, 4);
        read(&chat, &one, &anna, last).await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 1);
        read(&chat, &one, &anna, 1).await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 1, "the pointer never moves back");
        read(&chat, &two, &anna, i64::MAX as u64).await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 0);
        say(&chat, &two, "bert", "new").await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 1, "the pointer cannot pass the last event");
    }

    /// C8 C9: one script has the counters of at most 100 members.
    async fn messages_are_counted_for_all_members_of_a_large_room(context: TestContext) {
        let chat = open(&context).await;
        let names: Vec<String> = (0..120).map(|n| format!("member{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let id = room(&chat, "large", &names).await;
        let mut last = 0;
        for n in 0..3 {
            last = say(&chat, &id, names[0], &n.to_string()).await.sequence;
        }
        for name in &names[1..] {
            wait_for_total(&context, name, 3).await;
        }
        // One counter is not where the others are.
        read(&chat, &id, &user(names[50]), last).await;
        say(&chat, &id, names[0], "and one more").await;
        for (at, name) in names.iter().enumerate().skip(1) {
            wait_for_total(&context, name, if at == 50 { 1 } else { 4 }).await;
        }
        wait_for_total(&context, names[0], 0).await;
    }

    /// C8 C9: lost counters are rebuilt.
    async fn counters_are_rebuilt_after_a_data_loss(context: TestContext) {
        let chat = start(context.context(), short_lease()).await;
        let (one, two) = (room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert"]).await);
        let anna = user("anna");
        say(&chat, &one, "bert", "1").await;
        say(&chat, &two, "bert", "2").await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 2);
        // The node must have read all witness keys, or it does not detect the loss.
        wait_for_heartbeats(&context, &chat, 5).await;
        context.test_store().flush_all().await;
        // Without any request: the node detects the loss itself.
        assert_eq!(agreed_total(&context, &chat, &anna).await, 2);
        context.test_store().flush_all().await;
        say(&chat, &two, "bert", "3").await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 3);
    }

    async fn users_who_left_have_nothing_unread_and_start_again_when_they_rejoin(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let anna = user("anna");
        say(&chat, &id, "bert", "1").await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 1);
        done(chat.remove_member(&id, &anna, None).await);
        assert_eq!(agreed_total(&context, &chat, &anna).await, 0);
        say(&chat, &id, "bert", "2").await;
        done(chat.add_member(&id, &anna, None).await);
        assert_eq!(agreed_total(&context, &chat, &anna).await, 0);
        say(&chat, &id, "bert", "3").await;
        assert_eq!(agreed_total(&context, &chat, &anna).await, 1);
    }
}
