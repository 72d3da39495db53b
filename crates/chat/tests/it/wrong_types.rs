//! Keys that another client has replaced by another type: what they say is written again, and nobody else notices.

use hob_chat::PresenceChange;
use hob_chat::keys::SocketId;
use hob_schema::{Key, Shard};
use hob_store::cmd;
use hob_testkit::{LIMIT, TestContext, every_service, wait_for};

use crate::world::{NEEDS, get, keys, open, room, say, user};

/// Replaces a key by a string or, where it is one, by a list.
async fn spoil(context: &TestContext, key: &Key) {
    let kind: String = context.store.run(cmd("TYPE").arg(key).clone()).await.unwrap();
    context.test_store().as_outsider(cmd("DEL").arg(key).clone()).await;
    let spoil = match kind.as_str() {
        "string" => cmd("RPUSH").arg(key).arg("x").clone(),
        _ => cmd("SET").arg(key).arg("x").clone(),
    };
    context.test_store().as_outsider(spoil).await;
}

fn socket(id: &str) -> SocketId {
    SocketId::new(id).unwrap()
}

every_service! {
    NEEDS;

    /// C1 C2 C11 C12
    async fn one_users_presence_hides_nobody_elses_and_is_written_again(context: TestContext) {
        let chat = open(&context).await;
        let (keys, anna, bert) = (keys(&context), user("anna"), user("bert"));
        for who in [&anna, &bert] {
            chat.add_user_socket(who, &socket(&format!("{who}-1"))).await.unwrap();
        }
        for key in [keys.online(&anna), keys.last_seen(&anna), keys.presence(&anna), keys.sockets(&anna)] {
            spoil(&context, &key).await;
            let both = chat.presence(&[anna.clone(), bert.clone()]).await.unwrap();
            assert!(both[1].online && both[1].version > 0, "{key}: {both:?}");
            assert!(chat.sockets(&anna).await.is_ok() && chat.sockets(&bert).await.unwrap().len() == 1, "{key}");
            // Whatever was lost with it: once all sockets are closed the user is offline, and online with the next.
            chat.remove_user_socket(&anna, &socket("anna-1")).await.unwrap();
            let joined = chat.add_user_socket(&anna, &socket("anna-1")).await.unwrap();
            assert!(matches!(joined, PresenceChange::Changed { .. }), "{key}: {joined:?}");
            assert_eq!(get(&context, &keys.online(&anna)).await.as_deref(), Some("true"), "{key}");
            assert_eq!(chat.sockets(&anna).await.unwrap(), [socket("anna-1")], "{key}");
            assert!(get(&context, &keys.last_seen(&anna)).await.is_some(), "{key}");
        }
    }

    /// C8 C9 C13
    async fn one_conversations_keys_stop_no_other_counter(context: TestContext) {
        let chat = open(&context).await;
        let keys = keys(&context);
        let (one, two) = (room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert", "carl"]).await);
        let (anna, bert) = (user("anna"), user("bert"));
        let agree = async |what: &str| {
            wait_for(format_args!("the counters to agree after {what}"), LIMIT, async || {
                let mut seen = Vec::new();
                for who in [&anna, &bert] {
                    let (_, total) = chat.unread(who).await.unwrap();
                    // Of the wrong type until it is written again.
                    let held = context.store.run::<Option<String>>(cmd("GET").arg(keys.unread_total(who)).take()).await;
                    seen.push((held.ok().flatten(), total.to_string()));
                }
                if seen.iter().all(|(held, total)| held.as_ref() == Some(total)) { Ok(()) } else { Err(seen) }
            })
            .await;
        };
        say(&chat, &two, "carl", "hello").await;
        agree("the first message").await;
        for key in [
            keys.unread_held(&anna), keys.unread_total(&anna), keys.unread(&anna, &two), keys.participants(&one),
            keys.participants_floor(&one), keys.recent(&one), keys.recent_range(&one), keys.typists(&one),
        ] {
            spoil(&context, &key).await;
            say(&chat, &one, "anna", "again").await;
            say(&chat, &two, "carl", "again").await;
            agree(&key.to_string()).await;
            assert_eq!(chat.participants(&one).await.unwrap(), [anna.clone(), bert.clone()], "{key}");
        }
    }

    async fn the_nodes_join_again_where_their_list_was_replaced(context: TestContext) {
        let chat = open(&context).await;
        let (keys, shard) = (keys(&context), Shard::default());
        let alive = async |what: &str| {
            wait_for(format_args!("the node after {what}"), LIMIT, async || {
                let nodes = chat.nodes().await;
                if nodes.as_ref().is_ok_and(|nodes| nodes.len() == 1) { Ok(()) } else { Err(nodes) }
            })
            .await;
        };
        alive("its start").await;
        for key in [keys.nodes_live(shard), keys.nodes_info(shard), keys.nodes_dead(shard), keys.nodes_load(shard), keys.witness(shard)] {
            spoil(&context, &key).await;
            alive(&key.to_string()).await;
            chat.add_user_socket(&user("anna"), &socket("a")).await.unwrap();
            assert!(chat.is_user_online(&user("anna")).await.unwrap(), "{key}");
        }
    }
}
