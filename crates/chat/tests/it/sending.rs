//! Messages that are sent at the same time share a transaction, and each sender gets the answer to its own message.

use futures_util::future::join_all;
use hob_chat::{BlockAction, MessageRange, Refusal};
use hob_fixtures::every_service;

use crate::harness::{NEEDS, conversation, done, message, open, room, user};

every_service! {
    NEEDS;

    async fn messages_that_are_sent_together_are_numbered_without_gaps(context: TestContext) {
        let chat = open(&context).await;
        let rooms = [room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert"]).await];
        let sends = (0..60).map(|n| {
            let sender = ["anna", "bert", "outsider"][n % 3];
            let (chat, new) = (chat.clone(), message(&rooms[n % 2], sender, &n.to_string()));
            async move { (n, chat.send(&new).await.unwrap()) }
        });
        let (mut sent, mut refused) = ([0, 0], 0);
        for (n, answer) in join_all(sends).await {
            match answer {
                Ok(message) => {
                    assert_eq!(message.content, n.to_string());
                    sent[n % 2] += 1;
                }
                Err(refusal) => {
                    assert_eq!((n % 3, refusal), (2, Refusal::NotMember));
                    refused += 1;
                }
            }
        }
        assert_eq!((sent, refused), ([20, 20], 20));
        for room in &rooms {
            let messages = done(chat.messages(room, Some(&user("anna")), MessageRange::Newest, 100).await);
            let numbers: Vec<(u64, u64)> = messages.iter().map(|message| (message.number, message.sequence)).collect();
            // The first two events of a room are the joins of its members.
            assert_eq!(numbers, (1..=20).map(|number| (number, number + 2)).collect::<Vec<_>>());
        }
    }

    async fn message_that_cannot_be_sent_does_not_affect_the_others(context: TestContext) {
        let chat = open(&context).await;
        let (pair, group) = (room(&chat, "pair", &["anna", "mallory"]).await, room(&chat, "all", &["anna", "mallory", "bert"]).await);
        done(chat.block(&user("anna"), &user("mallory"), BlockAction::Block).await);
        let mut twice = message(&group, "bert", "twice");
        twice.client_id = Some("phone-1".into());
        let new = [
            message(&pair, "mallory", "hidden from the only other member"),
            message(&group, "mallory", "bert can read it"),
            message(&conversation("nowhere"), "bert", "no such conversation"),
            twice.clone(),
            twice,
            message(&group, "anna", "fine"),
        ];
        let answers = join_all(new.iter().map(|new| chat.send(new))).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers[0].as_ref().unwrap_err(), &Refusal::Blocked);
        assert_eq!(answers[2].as_ref().unwrap_err(), &Refusal::ConversationNotFound);
        assert_eq!(answers[3], answers[4], "the same client id");
        let mut numbers: Vec<u64> = [1, 3, 5].map(|n: usize| answers[n].as_ref().unwrap().number).into();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3]);
    }
}
