//! Users who are online in Redis without a connection go offline, whatever the cause, and those with one stay online.

use hob_chat::keys::{Incarnation, UserId};
use hob_chat::{Chat, Config};
use hob_database::Database;
use hob_fixtures::{Server, TestApp, TestContext, every_service};
use hob_service::{Period, ServiceContext};
use hob_store::cmd;
use hob_testkit::{LIMIT, TestDatabase, wait_for};
use hob_web::Service as _;

use crate::client::Client;
use crate::harness::{NEEDS, config, keys, open, short_lease, start, user, wait_for_heartbeats};

/// Two leases, and a page of each master of a Cluster.
const CHECK_LIMIT: std::time::Duration = LIMIT.saturating_mul(2);

/// Writes that a user has a socket on a node, as Redis has it after it has gone back to older data.
async fn write_socket(context: &TestContext, who: &UserId, owner: &str) {
    let keys = keys(context);
    let commands = [
        cmd("HSET").arg(keys.presence(who)).arg("version").arg(7).arg("s1").arg(owner).take(),
        cmd("SADD").arg(keys.sockets(who)).arg("s1").take(),
        cmd("SET").arg(keys.online(who)).arg("true").take(),
    ];
    for command in commands {
        context.test_store().as_outsider(command).await;
    }
}

async fn wait_until_offline(chat: &Chat, who: &UserId) {
    wait_for(format_args!("{who} to be offline"), CHECK_LIMIT, async || {
        chat.is_user_online(who).await.is_ok_and(|online| !online)
            && chat.sockets(who).await.is_ok_and(|sockets| sockets.is_empty())
    })
    .await;
}

async fn incarnation(chat: &Chat) -> String {
    wait_for("a node with a lease", LIMIT, async || !chat.nodes().await.unwrap().is_empty()).await;
    chat.nodes().await.unwrap().remove(0).incarnation
}

every_service! {
    NEEDS;

    /// C1 C2: nothing but the socket itself is wrong.
    async fn socket_that_its_live_node_does_not_have_is_closed(context: TestContext) {
        let chat = open(&context).await;
        let owner = incarnation(&chat).await;
        write_socket(&context, &user("anna"), &owner).await;
        wait_until_offline(&chat, &user("anna")).await;
        assert_eq!(incarnation(&chat).await, owner, "without a new incarnation");
    }

    /// C1 C2: no index and no list names the node that had the socket.
    async fn socket_of_a_forgotten_node_is_closed(context: TestContext) {
        let chat = start(context.context(), short_lease()).await;
        incarnation(&chat).await;
        write_socket(&context, &user("anna"), "0123456789abcdef0123456789abcdef").await;
        wait_until_offline(&chat, &user("anna")).await;
    }

    /// C1: Redis has evicted the sockets, but not the state.
    async fn user_without_sockets_is_offline(context: TestContext) {
        let chat = open(&context).await;
        let online = cmd("SET").arg(keys(&context).online(&user("anna"))).arg("true").take();
        context.test_store().as_outsider(online).await;
        wait_until_offline(&chat, &user("anna")).await;
    }
}

/// C1 C2: Redis is restarted from a snapshot, and the node has not looked at Redis in the time that is lost. So only the new
/// process shows that Redis has gone back.
#[test]
fn restart_is_noticed_without_any_other_sign() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is redis-server") };
        // A lease that a machine that stalls does not lose, so that the node has no other reason to begin a new incarnation.
        let chat = start(context.context(), Config { node_lease: Period::from_secs(60), ..config() }).await;
        let owner = incarnation(&chat).await;
        let keys = keys(&context);
        let looked = async || {
            let witness = keys.witness(keys.space().shards().next().unwrap());
            let look = cmd("ZRANGE").arg(witness).arg(0).arg(-1).arg("WITHSCORES").take();
            context.store.run::<Vec<String>>(look).await.unwrap()
        };
        wait_for("a look", LIMIT, async || !looked().await.is_empty()).await;
        // The snapshot is taken after a look, and the restart comes before the next one: looks are six seconds apart.
        let before = looked().await;
        wait_for("the next look", LIMIT, async || looked().await != before).await;
        let users = keys.node_users(&Incarnation::new(owner.as_str()).unwrap());
        context.test_store().as_outsider(cmd("SADD").arg(users).arg("anna").take()).await;
        write_socket(&context, &user("anna"), &owner).await;
        redis.command::<()>(&["SAVE"]);
        redis.kill();
        redis.restart();
        wait_for("the node to begin a new incarnation", LIMIT, async || {
            chat.nodes().await.is_ok_and(|nodes| nodes.iter().any(|node| node.incarnation != owner))
        })
        .await;
        wait_until_offline(&chat, &user("anna")).await;
    });
}

/// C1 C2: Redis has evicted keys of users who are connected, and nothing else that would show a loss. It evicts single keys, so
/// the others can still be there.
#[test]
fn connected_user_is_online_after_an_eviction() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is redis-server") };
        let chat = start(context.context(), short_lease()).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        let keys = keys(&context);
        let all =
            |name: &str| [keys.presence(&user(name)), keys.sockets(&user(name)), keys.online(&user(name))];
        let names = ["anna", "bert", "cara", "dirk"];
        let mut clients = Vec::new();
        for name in names {
            clients.push(Client::connect(&app, &chat, name).await);
        }
        let is_online = async |name: &str| {
            let sockets: u32 =
                context.store.run(cmd("SCARD").arg(keys.sockets(&user(name))).take()).await.unwrap();
            chat.is_user_online(&user(name)).await.is_ok_and(|online| online && sockets == 1)
        };
        for name in names {
            wait_for(&format!("{name} to be online"), LIMIT, async || is_online(name).await).await;
        }
        let [[presence, ..], [_, sockets, _], [.., online]] = ["anna", "bert", "cara"].map(all);
        for key in [presence, sockets, online].into_iter().chain(all("dirk")) {
            context.test_store().as_outsider(cmd("DEL").arg(key).take()).await;
        }
        for name in names {
            wait_for(&format!("{name} to be online again"), CHECK_LIMIT, async || {
                redis.evict_keys();
                is_online(name).await
            })
            .await;
        }
    });
}

/// C1: presence needs Redis only. A user who leaves goes offline, and the sockets of a new incarnation are restored.
#[test]
fn presence_works_without_the_database() {
    hob_testkit::run(async {
        let test = TestContext::redis(NEEDS).await;
        let TestDatabase::Postgres(postgres) = test.test_database() else { unreachable!("it is PostgreSQL") };
        // The handle of a service, which does not wait as long as that of a test.
        let sets: Vec<_> = [hob_web::MIGRATIONS].iter().chain(NEEDS.migrations).copied().collect();
        let database = Database::open(&postgres.url().parse().unwrap(), &sets).await.unwrap();
        let context = ServiceContext { database, ..test.context().clone() };
        let chat = start(&context, config()).await;
        let app = TestApp::start(&context, chat.routes()).await;
        let _anna = Client::connect(&app, &chat, "anna").await;
        let bert = Client::connect(&app, &chat, "bert").await;
        let keys = keys(&context);
        let owner = async || {
            let owners = cmd("HVALS").arg(keys.presence(&user("anna"))).take();
            context.store.run::<Vec<String>>(owners).await.unwrap()
        };
        let first = incarnation(&chat).await;
        wait_for("the socket", LIMIT, async || owner().await.contains(&first)).await;

        postgres.stop();
        drop(bert);
        wait_until_offline(&chat, &user("bert")).await;
        wait_for_heartbeats(&context, &chat, 3).await;
        assert_eq!(incarnation(&chat).await, first, "nothing failed in Redis");

        for shard in keys.space().shards() {
            test.test_store().as_outsider(cmd("DEL").arg(keys.witness(shard)).take()).await;
        }
        wait_for("the socket to be restored", LIMIT, async || !owner().await.contains(&first)).await;
        assert!(chat.is_user_online(&user("anna")).await.unwrap());
        postgres.restart();
    });
}
