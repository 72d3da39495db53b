//! Nodes see each other, and do not share a store with different databases.

use hob_fixtures::{Needs, every_service};
use hob_service::keys::Keys;
use hob_service::nodes::{self, StoreClaim};
use hob_service::{ServiceContext, Task};
use hob_testkit::{LIMIT, wait_for};

const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };

fn keep_alive(context: &ServiceContext, keys: &Keys, roles: &[&str]) {
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

    async fn nodes_see_each_other_join_and_leave(context: TestContext) {
        let keys = Keys::new(context.layout);
        let other = context.another_node().await;
        keep_alive(&context, &keys, &["uptime", "chat"]);
        keep_alive(&other, &keys, &["gateway"]);
        let mut both = vec![format!("{} uptime+chat", context.node), format!("{} gateway", other.node)];
        both.sort();
        wait_for("both nodes to be alive", LIMIT, async || names(&context, &keys).await == both).await;

        assert_eq!(other.tasks.stop(LIMIT).await, Vec::<String>::new());
        assert_eq!(names(&context, &keys).await, [format!("{} uptime+chat", context.node)]);
    }

    async fn node_joins_again_after_the_store_was_lost(context: TestContext) {
        let keys = Keys::new(context.layout);
        keep_alive(&context, &keys, &[]);
        wait_for("the node to be alive", LIMIT, async || names(&context, &keys).await.len() == 1).await;
        context.test_store().flush_all().await;
        wait_for("the node to be alive again", LIMIT, async || names(&context, &keys).await.len() == 1).await;
        let claim = nodes::claim(&context.store, &keys, context.database.id()).await.unwrap();
        assert_eq!(claim, StoreClaim::Ours, "the node claimed the store again");
    }

    async fn first_database_keeps_its_claim_of_the_store(context: TestContext) {
        let keys = Keys::new(context.layout);
        let ours = nodes::claim(&context.store, &keys, context.database.id()).await.unwrap();
        let elsewhere = hob_fixtures::TestContext::embedded(NEEDS, context.layout).await;
        let others = nodes::claim(&context.store, &keys, elsewhere.database.id()).await.unwrap();
        assert_eq!((ours, others), (StoreClaim::Ours, StoreClaim::Taken(context.database.id().to_string())));
    }
}
