//! Nodes find each other, and refuse to share hot state over different records.

use hob_house::keys::Keys;
use hob_house::nodes::{self, Claim};
use hob_house::{House, Task};
use hob_testkit::{LIMIT, Needs, every_house, wait_for};

const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };

fn keep(house: &House, keys: &Keys, roles: &[&str]) {
    let (house, keys) = (house.clone(), keys.clone());
    let roles: Vec<String> = roles.iter().map(|role| (*role).to_owned()).collect();
    let tasks = house.tasks.clone();
    tasks
        .spawn("node", move |task: Task| nodes::keep_alive(house.clone(), keys.clone(), roles.clone(), task));
}

async fn names(house: &House, keys: &Keys) -> Vec<String> {
    let live = nodes::live(&house.hot, keys).await.unwrap();
    live.into_iter().map(|node| format!("{} {}", node.name, node.roles.join("+"))).collect()
}

every_house! {
    NEEDS;

    async fn nodes_see_each_other_come_and_go(house: TestHouse) {
        let keys = Keys::new(house.layout);
        let other = house.another_node().await;
        keep(&house, &keys, &["uptime", "chat"]);
        keep(&other, &keys, &["gateway"]);
        let mut both = vec![format!("{} uptime+chat", house.node), format!("{} gateway", other.node)];
        both.sort();
        wait_for("both nodes to live", LIMIT, async || names(&house, &keys).await == both).await;

        assert_eq!(other.tasks.stop(LIMIT).await, Vec::<String>::new());
        assert_eq!(names(&house, &keys).await, [format!("{} uptime+chat", house.node)]);
    }

    async fn a_node_comes_back_after_hot_state_was_lost(house: TestHouse) {
        let keys = Keys::new(house.layout);
        keep(&house, &keys, &[]);
        wait_for("the node to live", LIMIT, async || names(&house, &keys).await.len() == 1).await;
        house.store().flush_all().await;
        wait_for("the node to live again", LIMIT, async || names(&house, &keys).await.len() == 1).await;
        let claim = nodes::claim(&house.hot, &keys, house.records.id()).await.unwrap();
        assert_eq!(claim, Claim::Ours, "it claimed hot state again");
    }

    async fn the_first_records_keep_hot_state(house: TestHouse) {
        let keys = Keys::new(house.layout);
        let ours = nodes::claim(&house.hot, &keys, house.records.id()).await.unwrap();
        let elsewhere = hob_testkit::TestHouse::embedded(NEEDS, house.layout).await;
        let others = nodes::claim(&house.hot, &keys, elsewhere.records.id()).await.unwrap();
        assert_eq!((ours, others), (Claim::Ours, Claim::Taken(house.records.id().to_string())));
    }
}
