//! Unread counts (C8 C9): always what a recount in the database says.

use hob_chat::keys::{ConversationId, UserId};
use hob_chat::{Chat, ReceiptKind};
use hob_service::ServiceContext;
use hob_testkit::{LIMIT, every_service, wait_for};

use crate::world::{NEEDS, done, get, keys, open, room, say, user};

/// Waits until the store says what the database says, and answers with the total.
async fn settled(context: &ServiceContext, chat: &Chat, who: &UserId) -> u64 {
    let keys = keys(context);
    wait_for(format_args!("the counters of {who} to agree with the database"), LIMIT, async || {
        let (counts, total) = chat.unread(who).await.unwrap();
        let mut seen = Vec::new();
        for count in &counts {
            let held = get(context, &keys.unread(who, &count.conversation_id)).await;
            seen.push((held.map_or(0, |held| held.parse().unwrap()), count.unread));
        }
        let held: u64 = get(context, &keys.unread_total(who)).await.map_or(0, |held| held.parse().unwrap());
        let agree = seen.iter().all(|(held, counted)| held == counted) && held == total;
        if agree { Ok(total) } else { Err((seen, held, total)) }
    })
    .await
}

async fn read(chat: &Chat, id: &ConversationId, who: &UserId, up_to: u64) {
    done(chat.record_receipt(id, who, up_to, ReceiptKind::Read).await);
}

every_service! {
    NEEDS;

    /// C8 C9: others' undeleted messages after my read pointer, and their sum.
    async fn unread_is_what_others_sent_after_my_read_pointer(context: TestContext) {
        let chat = open(&context).await;
        let (one, two) = (room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert"]).await);
        let anna = user("anna");
        let mut last = 0;
        for n in 0..3 {
            last = say(&chat, &one, "bert", &n.to_string()).await.sequence;
            say(&chat, &one, "anna", "my own do not count").await;
        }
        let gone = say(&chat, &two, "bert", "deleted in a moment").await;
        say(&chat, &two, "bert", "stays").await;
        assert_eq!(settled(&context, &chat, &anna).await, 5);
        done(chat.delete(&two, &gone.id, &user("bert")).await);
        assert_eq!(settled(&context, &chat, &anna).await, 4);
        read(&chat, &one, &anna, last).await;
        assert_eq!(settled(&context, &chat, &anna).await, 1);
        read(&chat, &one, &anna, 1).await;
        assert_eq!(settled(&context, &chat, &anna).await, 1, "a pointer never goes back");
        read(&chat, &two, &anna, i64::MAX as u64).await;
        assert_eq!(settled(&context, &chat, &anna).await, 0);
        say(&chat, &two, "bert", "new").await;
        assert_eq!(settled(&context, &chat, &anna).await, 1, "nobody reads ahead");
    }

    /// C8 C9: lost counters are rebuilt, all of them.
    async fn counters_are_rebuilt_after_a_loss(context: TestContext) {
        let chat = open(&context).await;
        let (one, two) = (room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert"]).await);
        let anna = user("anna");
        say(&chat, &one, "bert", "1").await;
        say(&chat, &two, "bert", "2").await;
        assert_eq!(settled(&context, &chat, &anna).await, 2);
        context.test_store().flush_all().await;
        // Nobody does anything: the node notices by itself.
        assert_eq!(settled(&context, &chat, &anna).await, 2);
        context.test_store().flush_all().await;
        say(&chat, &two, "bert", "3").await;
        assert_eq!(settled(&context, &chat, &anna).await, 3);
    }

    async fn who_left_has_nothing_unread_and_who_comes_back_begins_anew(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let anna = user("anna");
        say(&chat, &id, "bert", "1").await;
        assert_eq!(settled(&context, &chat, &anna).await, 1);
        done(chat.remove_member(&id, &anna, None).await);
        assert_eq!(settled(&context, &chat, &anna).await, 0);
        say(&chat, &id, "bert", "2").await;
        done(chat.add_member(&id, &anna, None).await);
        assert_eq!(settled(&context, &chat, &anna).await, 0);
        say(&chat, &id, "bert", "3").await;
        assert_eq!(settled(&context, &chat, &anna).await, 1);
    }
}
