//! Keys that another client has replaced by another type: what they say is written again, and nobody else notices.

use hob_chat::Change;
use hob_chat::keys::SocketId;
use hob_hot::cmd;
use hob_schema::{Key, Shard};
use hob_testkit::{LIMIT, TestHouse, every_house, wait_for};

use crate::world::{NEEDS, get, keys, open, room, say, user};

/// Replaces a key by a string or, where it is one, by a list.
async fn spoil(house: &TestHouse, key: &Key) {
    let kind: String = house.hot.run(cmd("TYPE").arg(key).clone()).await.unwrap();
    house.store().as_outsider(cmd("DEL").arg(key).clone()).await;
    let spoil = match kind.as_str() {
        "string" => cmd("RPUSH").arg(key).arg("x").clone(),
        _ => cmd("SET").arg(key).arg("x").clone(),
    };
    house.store().as_outsider(spoil).await;
}

fn socket(id: &str) -> SocketId {
    SocketId::new(id).unwrap()
}

every_house! {
    NEEDS;

    /// C1 C2 C11 C12
    async fn one_users_presence_hides_nobody_elses_and_is_written_again(house: TestHouse) {
        let chat = open(&house).await;
        let (keys, anna, bert) = (keys(&house), user("anna"), user("bert"));
        for who in [&anna, &bert] {
            chat.add_user_socket(who, &socket(&format!("{who}-1"))).await.unwrap();
        }
        for key in [keys.online(&anna), keys.last_seen(&anna), keys.presence(&anna), keys.sockets(&anna)] {
            spoil(&house, &key).await;
            let both = chat.presence(&[anna.clone(), bert.clone()]).await.unwrap();
            assert!(both[1].online && both[1].version > 0, "{key}: {both:?}");
            assert!(chat.sockets(&anna).await.is_ok() && chat.sockets(&bert).await.unwrap().len() == 1, "{key}");
            // Whatever was lost with it: once all sockets are closed the user is offline, and online with the next.
            chat.remove_user_socket(&anna, &socket("anna-1")).await.unwrap();
            let joined = chat.add_user_socket(&anna, &socket("anna-1")).await.unwrap();
            assert!(matches!(joined, Change::Turned { .. }), "{key}: {joined:?}");
            assert_eq!(get(&house, &keys.online(&anna)).await.as_deref(), Some("true"), "{key}");
            assert_eq!(chat.sockets(&anna).await.unwrap(), [socket("anna-1")], "{key}");
            assert!(get(&house, &keys.last_seen(&anna)).await.is_some(), "{key}");
        }
    }

    /// C8 C9 C13
    async fn one_conversations_keys_stop_no_other_counter(house: TestHouse) {
        let chat = open(&house).await;
        let keys = keys(&house);
        let (one, two) = (room(&chat, "one", &["anna", "bert"]).await, room(&chat, "two", &["anna", "bert", "carl"]).await);
        let (anna, bert) = (user("anna"), user("bert"));
        let agree = async |what: &str| {
            wait_for(format_args!("the counters to agree after {what}"), LIMIT, async || {
                let mut seen = Vec::new();
                for who in [&anna, &bert] {
                    let (_, total) = chat.unread(who).await.unwrap();
                    // Of the wrong type until it is written again.
                    let held = house.hot.run::<Option<String>>(cmd("GET").arg(keys.unread_total(who)).take()).await;
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
            spoil(&house, &key).await;
            say(&chat, &one, "anna", "again").await;
            say(&chat, &two, "carl", "again").await;
            agree(&key.to_string()).await;
            assert_eq!(chat.participants(&one).await.unwrap(), [anna.clone(), bert.clone()], "{key}");
        }
    }

    async fn the_nodes_join_again_where_their_list_was_replaced(house: TestHouse) {
        let chat = open(&house).await;
        let (keys, shard) = (keys(&house), Shard::default());
        let alive = async |what: &str| {
            wait_for(format_args!("the node after {what}"), LIMIT, async || {
                let nodes = chat.nodes().await;
                if nodes.as_ref().is_ok_and(|nodes| nodes.len() == 1) { Ok(()) } else { Err(nodes) }
            })
            .await;
        };
        alive("its start").await;
        for key in [keys.nodes_live(shard), keys.nodes_info(shard), keys.nodes_dead(shard), keys.nodes_load(shard), keys.witness(shard)] {
            spoil(&house, &key).await;
            alive(&key.to_string()).await;
            chat.add_user_socket(&user("anna"), &socket("a")).await.unwrap();
            assert!(chat.is_user_online(&user("anna")).await.unwrap(), "{key}");
        }
    }
}
