//! Rebuilding a lost tag, on every store.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hob_fixtures::{TestStore, every_store};
use hob_store::epoch::{Epoch, MARKER, Outcome, Progress, Rebuild, Recovery, SERVER, rebuild};
use hob_store::{Error, Reply, Result, Script, Store, cmd};

static WRITE: Script = Script::with(
    &[MARKER],
    "local gone = superseded(KEYS[1], ARGV[1])
     if gone then return gone end
     redis.call('SADD', KEYS[2], ARGV[2])
     return {'written'}",
);
static READ: Script = Script::with(
    &[MARKER],
    "local gone = lost(KEYS[1], ARGV[1])
     if gone then return gone end
     return {'size', redis.call('SCARD', KEYS[2])}",
);
/// What another node does at the end of its rebuild.
static OVERTAKE: Script = Script::with(
    &[SERVER],
    "return {'set', redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'server', server)}",
);

pub(crate) const BATCHES: u32 = 20;

/// A node with its tag. Clones share `epoch`, which replaces the epoch in the database.
#[derive(Clone)]
pub(crate) struct Node {
    store: Store,
    marker: String,
    members: String,
    epoch: Arc<AtomicU32>,
    fault: Fault,
}

/// A fault in the middle of the first restore.
#[derive(Clone)]
enum Fault {
    None,
    /// The store loses the tag.
    Loss(Arc<AtomicBool>),
    /// The node dies.
    Death,
    /// Another node rebuilds the tag before this one raises the epoch. The database has one epoch for many tags.
    Overtaken,
}

impl Node {
    fn new(test_store: &TestStore) -> Self {
        let (marker, members) = (test_store.key("marker", "1"), test_store.key("members", "1"));
        Self::on(test_store.store(), marker, members)
    }

    pub(crate) fn on(store: &Store, marker: String, members: String) -> Self {
        Self { store: store.clone(), marker, members, epoch: Arc::default(), fault: Fault::None }
    }

    /// Another node with the same database.
    pub(crate) fn with_store(&self, store: &Store) -> Self {
        Self { store: store.clone(), ..self.clone() }
    }

    /// A node that dies in the middle of a rebuild.
    pub(crate) fn dying(&self) -> Self {
        self.with(Fault::Death)
    }

    /// Writes a key of the tag.
    pub(crate) async fn touch(&self) -> Result<u64> {
        self.store.run(cmd("SADD").arg(&self.members).arg("0")).await
    }

    /// The epoch in the database.
    pub(crate) fn epoch(&self) -> Epoch {
        epoch(self.epoch.load(Ordering::SeqCst))
    }

    fn with(&self, fault: Fault) -> Self {
        Self { fault, ..self.clone() }
    }

    pub(crate) async fn rebuild(&self) -> Result<Recovery> {
        rebuild(&self.store, &self.marker, &[&self.members], self).await
    }

    async fn lose(&self) {
        self.store.run::<u64>(cmd("DEL").arg(&self.marker).arg(&self.members)).await.unwrap();
    }

    async fn write(&self, epoch: Epoch, member: impl ToString) -> Result<Progress> {
        let call = WRITE.on(&[&self.marker, &self.members]).arg(epoch.get()).arg(member.to_string());
        Progress::read(&self.store.run::<Reply>(call).await?, "written")
    }

    async fn size(&self, epoch: Epoch) -> Outcome<u32> {
        self.try_size(epoch).await.unwrap()
    }

    pub(crate) async fn try_size(&self, epoch: Epoch) -> Result<Outcome<u32>> {
        let call = READ.on(&[&self.marker, &self.members]).arg(epoch.get());
        Outcome::read(self.store.run(call).await?, |mut reply| reply.next())
    }

    async fn marker(&self) -> [Option<String>; 2] {
        self.store.run(cmd("HMGET").arg(&self.marker).arg("epoch").arg("rebuilding")).await.unwrap()
    }
}

impl Rebuild for Node {
    type Error = Error;

    async fn valid_epochs(&self) -> Result<RangeInclusive<Epoch>> {
        if let Fault::Overtaken = self.fault {
            return Ok(epoch(0)..=Epoch::MAX);
        }
        let epoch = Epoch::new(self.epoch.load(Ordering::SeqCst))?;
        Ok(epoch..=epoch)
    }

    async fn raise_epoch(&self, lost: Epoch) -> Result<Option<Epoch>> {
        let mut next = lost.get() + 1;
        if let Fault::Overtaken = self.fault {
            self.store.run::<Reply>(OVERTAKE.on(&[&self.marker]).arg(next)).await?;
            next += 1;
        }
        if self.epoch.fetch_max(next, Ordering::SeqCst) < next {
            Epoch::new(next).map(Some)
        } else {
            Ok(None)
        }
    }

    async fn restore(&self, epoch: Epoch) -> Result<Progress> {
        for member in 0..BATCHES {
            if member == BATCHES / 2 {
                match &self.fault {
                    Fault::None | Fault::Overtaken => {}
                    Fault::Loss(done) => {
                        if !done.swap(true, Ordering::SeqCst) {
                            self.lose().await;
                        }
                    }
                    Fault::Death => return Err(Error::Misuse("the node has died".to_owned())),
                }
            }
            if self.write(epoch, member).await? == Progress::Superseded {
                return Ok(Progress::Superseded);
            }
        }
        Ok(Progress::Complete)
    }
}

pub(crate) fn epoch(number: u32) -> Epoch {
    Epoch::new(number).unwrap()
}

every_store! {
    async fn lost_tag_is_rebuilt_once_in_a_new_epoch(test_store: TestStore) {
        let node = Node::new(&test_store);
        for number in 1..=3 {
            assert_eq!(node.size(epoch(number - 1)).await, Outcome::Lost { found: None });
            assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(number)));
            assert_eq!(node.size(epoch(number)).await, Outcome::Done(BATCHES));
            assert_eq!(node.rebuild().await.unwrap(), Recovery::Adopted(epoch(number)));
            assert_eq!(node.size(epoch(number - 1)).await, Outcome::Lost { found: Some(epoch(number)) });
            assert_eq!(node.write(epoch(number), "late").await.unwrap(), Progress::Superseded);
            node.lose().await;
        }
    }

    async fn loss_during_a_rebuild_is_noticed(test_store: TestStore) {
        let node = Node::new(&test_store).with(Fault::Loss(Arc::default()));
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(2)));
        assert_eq!(node.size(epoch(2)).await, Outcome::Done(BATCHES));
    }

    async fn rebuild_of_a_dead_node_is_finished_by_another(test_store: TestStore) {
        let node = Node::new(&test_store);
        assert!(node.with(Fault::Death).rebuild().await.is_err());
        assert_eq!(node.marker().await, [None, Some("1".to_owned())]);
        assert_eq!(node.size(epoch(1)).await, Outcome::Lost { found: None }, "a partial rebuild is still lost");
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(1)));
        assert_eq!(node.size(epoch(1)).await, Outcome::Done(BATCHES));
    }

    async fn epoch_that_was_raised_and_not_begun_is_replaced(test_store: TestStore) {
        let node = Node::new(&test_store);
        assert!(node.with(Fault::Death).rebuild().await.is_err());
        // Another node died before it began its epoch. A late batch of the first node must be refused.
        assert_eq!(node.raise_epoch(epoch(1)).await.unwrap(), Some(epoch(2)));
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(3)));
        assert_eq!(node.write(epoch(1), "late").await.unwrap(), Progress::Superseded);
        assert_eq!(node.size(epoch(3)).await, Outcome::Done(BATCHES));
    }

    async fn nodes_rebuild_a_tag_together(test_store: TestStore) {
        let node = Node::new(&test_store);
        for _ in 0..5 {
            let loss = Fault::Loss(Arc::default());
            let nodes = (0..8).map(|_| node.with(loss.clone()));
            let rebuilds = nodes.map(|node| tokio::spawn(async move { node.rebuild().await.unwrap() }));
            for recovery in futures_util::future::join_all(rebuilds).await {
                assert_ne!(recovery.unwrap(), Recovery::Interrupted);
            }
            let current = epoch(node.epoch.load(Ordering::SeqCst));
            assert_eq!(node.rebuild().await.unwrap(), Recovery::Adopted(current));
            assert_eq!(node.size(current).await, Outcome::Done(BATCHES));
            node.lose().await;
        }
    }

    async fn tag_that_was_rebuilt_in_the_meantime_is_not_rebuilt_again(test_store: TestStore) {
        let node = Node::new(&test_store);
        assert_eq!(node.with(Fault::Overtaken).rebuild().await.unwrap(), Recovery::Adopted(epoch(1)));
        assert_eq!(node.epoch.load(Ordering::SeqCst), 2, "the database may have a later epoch than a tag");
        assert_eq!(node.marker().await, [Some("1".to_owned()), None]);
    }

    async fn marker_of_another_client_counts_as_lost(test_store: TestStore) {
        let node = Node::new(&test_store);
        let foreign = [
            cmd("SET").arg(&node.marker).arg("x").take(),
            cmd("HSET").arg(&node.marker).arg("epoch").arg("abc").take(),
            cmd("HSET").arg(&node.marker).arg("epoch").arg("99999999").take(),
            cmd("HSET").arg(&node.marker).arg("rebuilding").arg("007").take(),
        ];
        for (number, foreign) in (1..).zip(foreign) {
            node.lose().await;
            test_store.as_outsider(foreign).await;
            assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(number)));
            assert_eq!(node.size(epoch(number)).await, Outcome::Done(BATCHES));
        }
    }

    async fn tag_of_a_later_epoch_than_the_database_is_rebuilt(test_store: TestStore) {
        let node = Node::new(&test_store);
        node.epoch.store(6, Ordering::SeqCst);
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(7)));
        // The database is restored from a backup.
        node.epoch.store(3, Ordering::SeqCst);
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(8)));
    }
}
