//! Conversations, members and permissions.

use hob_chat::{BlockAction, NewConversation, ReceiptKind, Refusal};
use hob_database::PageRequest;
use hob_fixtures::every_service;
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};

use crate::harness::{NEEDS, conversation, done, keys, message, open, room, say, user};

every_service! {
    NEEDS;

    async fn conversation_is_opened_once_and_lists_its_members(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "conv123", &["anna", "bert"]).await;
        let again = NewConversation { id: id.clone(), title: "Again".into(), created_by: user("anna"), members: vec![] };
        assert_eq!(chat.open_conversation(&again).await.unwrap(), Err(Refusal::AlreadyExists));
        let members = chat.members(&id, "", 10).await.unwrap();
        assert_eq!(members.iter().map(|member| member.user_id.as_str()).collect::<Vec<_>>(), ["anna", "bert"]);
        let listed = chat.conversations_of(&user("bert"), &PageRequest::default()).await.unwrap();
        assert_eq!(listed.rows[0].id, id);
        assert!(chat.conversations_of(&user("carl"), &PageRequest::default()).await.unwrap().rows.is_empty());
    }

    /// C9: `unread:<user>:total` is the badge count, so the conversation id `total` is reserved.
    async fn total_is_not_a_conversation_id(context: TestContext) {
        drop(context);
        assert!(hob_chat::keys::ConversationId::new("total").is_err());
    }

    async fn only_members_can_send_read_and_rename(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        assert_eq!(chat.send(&message(&id, "eve", "hi")).await.unwrap(), Err(Refusal::NotMember));
        assert_eq!(chat.send(&message(&conversation("none"), "anna", "hi")).await.unwrap(), Err(Refusal::ConversationNotFound));
        let read = chat.record_receipt(&id, &user("eve"), 1, ReceiptKind::Read).await.unwrap();
        assert_eq!(read, Err(Refusal::NotMember));
        assert_eq!(chat.rename(&id, &user("eve"), "Eve's").await.unwrap(), Err(Refusal::NotMember));
        done(chat.rename(&id, &user("bert"), "Bert's").await);
        let after = chat.conversation(&id).await.unwrap().unwrap();
        assert_eq!((after.title.as_str(), after.sequence), ("Bert's", 3), "a refused change does not use a sequence number");
    }

    /// C13: complete or absent, and dropped on change.
    async fn participant_cache_is_complete_or_absent(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let key = keys(&context).participants(&id);
        let members = async || -> Vec<String> {
            let mut members: Vec<String> = context.store.run(cmd("SMEMBERS").arg(key.as_bytes()).take()).await.unwrap();
            members.sort();
            members
        };
        // The relay may empty the cache after a change a second time.
        let filled = async |expected: &[&str]| {
            wait_for("the members in the cache", LIMIT, async || {
                assert_eq!(chat.participants(&id).await.unwrap().len(), expected.len());
                let cached = members().await;
                assert!(cached.is_empty() || cached == expected, "{cached:?}");
                if cached.is_empty() { Err(cached) } else { Ok(()) }
            })
            .await;
        };
        filled(&["anna", "bert"]).await;
        done(chat.add_member(&id, &user("carl"), Some(&user("anna"))).await);
        let cached = members().await;
        assert!(cached.is_empty() || cached == ["anna", "bert", "carl"], "{cached:?}");
        filled(&["anna", "bert", "carl"]).await;
        let ttl: i64 = context.store.run(cmd("PTTL").arg(key.as_bytes()).take()).await.unwrap();
        assert!(ttl > 0 && ttl <= 3_600_000, "{ttl}");
    }

    /// C8 C20: a block also hides the messages of a user who has left.
    async fn block_hides_messages_of_users_who_left(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert", "carl"]).await;
        say(&chat, &id, "carl", "bye").await;
        done(chat.remove_member(&id, &user("carl"), None).await);
        let badge = keys(&context).unread_total(&user("anna"));
        let shows = async |total: &str| {
            wait_for("the badge count", LIMIT, async || crate::harness::get(&context, &badge).await.as_deref() == Some(total)).await;
        };
        shows("1").await;
        done(chat.block(&user("anna"), &user("carl"), BlockAction::Block).await);
        shows("0").await;
        done(chat.block(&user("anna"), &user("carl"), BlockAction::Unblock).await);
        shows("1").await;
    }

    /// C20: a block stops delivery between two users in both directions.
    async fn block_hides_users_from_each_other(context: TestContext) {
        let chat = open(&context).await;
        let pair = room(&chat, "pair", &["anna", "bert"]).await;
        let group = room(&chat, "group", &["anna", "bert", "carl"]).await;
        say(&chat, &group, "bert", "before").await;
        assert!(done(chat.block(&user("anna"), &user("bert"), BlockAction::Block).await));
        for sender in ["anna", "bert"] {
            assert_eq!(chat.send(&message(&pair, sender, "psst")).await.unwrap(), Err(Refusal::Blocked));
        }
        say(&chat, &group, "bert", "to carl only").await;
        let visible_to = async |viewer: &str| {
            let messages = chat.messages(&group, Some(&user(viewer)), hob_chat::MessageRange::Newest, 10).await;
            done(messages).into_iter().map(|message| message.content).collect::<Vec<_>>()
        };
        assert_eq!(visible_to("carl").await, ["before", "to carl only"]);
        assert_eq!(visible_to("anna").await, Vec::<String>::new());
        let (counts, total) = chat.unread(&user("anna")).await.unwrap();
        assert_eq!((counts.len(), total), (2, 0));
        wait_for("the counter of the blocker to agree", LIMIT, async || {
            crate::harness::get(&context, &keys(&context).unread_total(&user("anna"))).await.as_deref() == Some("0")
        }).await;
        assert!(done(chat.block(&user("anna"), &user("bert"), BlockAction::Unblock).await));
        assert_eq!(visible_to("anna").await, ["before", "to carl only"]);
        say(&chat, &pair, "bert", "again").await;
    }
}
