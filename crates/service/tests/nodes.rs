//! Nodes find each other, and refuse to share a store over different databases.

use hob_service::keys::Keys;
use hob_service::nodes::{self, Claim};
use hob_service::{ServiceContext, Task};
use hob_testkit::{LIMIT, Needs, every_service, wait_for};

const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };

fn keep(context: &ServiceContext, keys: &Keys, roles: &[&str]) {
    let (context, keys) = (context.clone(), keys.clone());
    let roles: Vec<String> = roles.iter().map(|role| (*role).to_owned()).collect();
    let tasks = context.tasks.clone();
    tasks.spawn("node", move |task: Task| {
        nodes::keep_alive(context.clone(), keys.clone(), roles.clone(), task)
    });
}

async fn names(context: &ServiceContext, keys: &Keys) -> Vec<String> {
    let live = nodes::live(&context.store, keys).await.unwrap();
    live.into_iter().map(|node| format!("{} {}", node.name, node.roles.join("+"))).collect()
}

every_service! {
    NEEDS;

    async fn nodes_see_each_other_come_and_go(context: TestContext) {
        let keys = Keys::new(context.layout);
        let other = context.another_node().await;
        keep(&context, &keys, &["uptime", "chat"]);
        keep(&other, &keys, &["gateway"]);
        let mut both = vec![format!("{} uptime+chat", context.node), format!("{} gateway", other.node)];
        both.sort();
        wait_for("both nodes to live", LIMIT, async || names(&context, &keys).await == both).await;

        assert_eq!(other.tasks.stop(LIMIT).await, Vec::<String>::new());
        assert_eq!(names(&context, &keys).await, [format!("{} uptime+chat", context.node)]);
    }

    async fn a_node_comes_back_after_the_store_was_lost(context: TestContext) {
        let keys = Keys::new(context.layout);
        keep(&context, &keys, &[]);
        wait_for("the node to live", LIMIT, async || names(&context, &keys).await.len() == 1).await;
        context.test_store().flush_all().await;
        wait_for("the node to live again", LIMIT, async || names(&context, &keys).await.len() == 1).await;
        let claim = nodes::claim(&context.store, &keys, context.database.id()).await.unwrap();
        assert_eq!(claim, Claim::Ours, "it claimed the store again");
    }

    async fn the_first_records_keep_the_store(context: TestContext) {
        let keys = Keys::new(context.layout);
        let ours = nodes::claim(&context.store, &keys, context.database.id()).await.unwrap();
        let elsewhere = hob_testkit::TestContext::embedded(NEEDS, context.layout).await;
        let others = nodes::claim(&context.store, &keys, elsewhere.database.id()).await.unwrap();
        assert_eq!((ours, others), (Claim::Ours, Claim::Taken(context.database.id().to_string())));
    }
}
