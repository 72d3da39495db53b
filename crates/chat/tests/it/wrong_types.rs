//! Keys whose type another client has changed are repaired, and do not affect other keys.

use hob_chat::PresenceChange;
use hob_chat::keys::SocketId;
use hob_fixtures::{TestContext, every_service};
use hob_schema::Shard;
use hob_store::{Key, cmd};
use hob_testkit::{LIMIT, wait_for};

use crate::harness::{NEEDS, get, keys, open, room, say, user};

/// Replaces a key by a key of another type.
async fn change_type(context: &TestContext, key: &Key) {
    let kind: String = context.store.run(cmd("TYPE").arg(key).clone()).await.unwrap();
    context.test_store().as_outsider(cmd("DEL").arg(key).clone()).await;
    let change_type = match kind.as_str() {
        "string" => cmd("RPUSH").arg(key).arg("x").clone(),
        _ => cmd("SET").arg(key).arg("x").clone(),
    };
    context.test_store().as_outsider(change_type).await;
}

fn socket(id: &str) -> SocketId {
    SocketId::new(id).unwrap()
}

every_service! {
    NEEDS;

    /// C1 C2 C11 C12
    async fn wrong_type_of_one_users_presence_is_repaired_and_hides_no_other_user(context: TestContext) {
        let chat = open(&context).await;
        let (keys, anna, bert) = (keys(&context), user("anna"), user("bert"));
        for who in [&anna, &bert] {
            chat.add_user_socket(who, &socket(&format!("{who}-1"))).await.unwrap();
        }
        for key in [keys.online(&anna), keys.last_seen(&anna), keys.presence(&anna), keys.sockets(&anna)] {
            change_type(&context, &key).await;
            let both = chat.presence(&[anna.clone(), bert.clone()]).await.unwrap();
            assert!(both[1].online && both[1].version > 0, "{key}: {both:?}");
            assert!(chat.sockets(&anna).await.is_ok() && chat.sockets(&bert).await.unwrap().len() == 1, "{key}");
            // The user goes offline with the last socket and online with the next, although data of the key was lost.
            chat.remove_user_socket(&anna, &socket("anna-1")).await.unwrap();
            wait_for("anna to be offline", LIMIT, async || !chat.is_user_online(&anna).await.unwrap()).await;
            let joined = chat.add_user_socket(&anna, &socket("anna-1")).await.unwrap();
            assert!(matches!(joined, PresenceChange::Changed { .. }), "{key}: {joined:?}");
            assert_eq!(get(&context, &keys.online(&anna)).await.as_deref(), Some("true"), "{key}");
            assert_eq!(chat.sockets(&anna).await.unwrap(), [socket("anna-1")], "{key}");
            assert!(get(&context, &keys.last_seen(&anna)).await.is_some(), "{key}");
        }
    }

    /// C8 C9 C13
    async fn wrong_type_in_one_conversation_stops_no_other_counter(context: TestContext) {
        let chat = open(&context).await;
        let keys = keys(&context);
        let (one, two) = (room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert", "carl"]).await);
        let (anna, bert) = (user("anna"), user("bert"));
        let agree = async |what: &str| {
            wait_for(format_args!("the counters to agree after {what}"), LIMIT, async || {
                let mut compared = Vec::new();
                for who in [&anna, &bert] {
                    let (_, total) = chat.unread(who).await.unwrap();
                    // The key has the wrong type until it is written again.
                    let stored = context.store.run::<Option<String>>(cmd("GET").arg(keys.unread_total(who)).take()).await;
                    compared.push((stored.ok().flatten(), total.to_string()));
                }
                if compared.iter().all(|(stored, total)| stored.as_ref() == Some(total)) { Ok(()) } else { Err(compared) }
            })
            .await;
        };
        say(&chat, &two, "carl", "hello").await;
        agree("the first message").await;
        for key in [
            keys.unread_held(&anna), keys.unread_total(&anna), keys.unread(&anna, &two), keys.participants(&one),
            keys.participants_floor(&one), keys.recent(&one), keys.recent_range(&one), keys.typists(&one),
        ] {
            change_type(&context, &key).await;
            say(&chat, &one, "anna", "again").await;
            say(&chat, &two, "carl", "again").await;
            agree(&key.to_string()).await;
            assert_eq!(chat.participants(&one).await.unwrap(), [anna.clone(), bert.clone()], "{key}");
        }
    }

    async fn nodes_join_again_after_their_list_got_the_wrong_type(context: TestContext) {
        let chat = open(&context).await;
        let (keys, shard) = (keys(&context), Shard::default());
        let alive = async |what: &str| {
            wait_for(format_args!("the node to recover after {what}"), LIMIT, async || {
                let nodes = chat.nodes().await;
                if nodes.as_ref().is_ok_and(|nodes| nodes.len() == 1) { Ok(()) } else { Err(nodes) }
            })
            .await;
        };
        alive("its start").await;
        for key in [keys.nodes_live(shard), keys.nodes_info(shard), keys.nodes_dead(shard), keys.nodes_load(shard), keys.witness(shard)] {
            change_type(&context, &key).await;
            alive(&key.to_string()).await;
            chat.add_user_socket(&user("anna"), &socket("a")).await.unwrap();
            assert!(chat.is_user_online(&user("anna")).await.unwrap(), "{key}");
        }
    }
}
