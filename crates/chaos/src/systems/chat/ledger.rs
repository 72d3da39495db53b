//! What the clients of a conversation know: which messages were acknowledged, and which each of them received.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The acknowledged messages of one conversation, and what its members received.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Sender and content by sequence number.
    acknowledged: BTreeMap<u64, (usize, String)>,
    contents: HashMap<String, u64>,
    /// The last acknowledged sequence number of each sender, who sends one message after the other.
    last_of: HashMap<usize, u64>,
    /// Messages without an acknowledgement: they may exist or not.
    uncertain: HashSet<String>,
    received: HashMap<usize, Received>,
    /// By member: everything up to this sequence number is read.
    read: HashMap<usize, u64>,
}

/// What one member received.
#[derive(Debug, Default)]
struct Received {
    /// Content by offset.
    messages: BTreeMap<u64, String>,
    /// Hashes of all contents: a run may have millions of messages.
    contents: HashSet<u64>,
}

impl Ledger {
    /// A sender got this sequence number for its message.
    pub(crate) fn acknowledge(&mut self, sender: usize, sequence: u64, content: &str) -> Result<(), String> {
        if let Some((_, other)) = self.acknowledged.get(&sequence) {
            return Err(format!("sequence {sequence} was given to {other:?} and to {content:?}"));
        }
        let last = self.last_of.insert(sender, sequence).unwrap_or(0);
        self.contents.insert(content.to_owned(), sequence);
        self.acknowledged.insert(sequence, (sender, content.to_owned()));
        if last > sequence {
            return Err(format!(
                "{content:?} has sequence {sequence}, and an earlier message of its sender {last}"
            ));
        }
        Ok(())
    }

    pub(crate) fn give_up(&mut self, content: &str) {
        self.uncertain.insert(content.to_owned());
    }

    /// A member received a message.
    pub(crate) fn receive(&mut self, member: usize, offset: u64, content: &str) -> Result<(), String> {
        let received = self.received.entry(member).or_default();
        let last = received.messages.last_key_value().map_or(0, |(last, _)| *last);
        let mut hash = DefaultHasher::new();
        content.hash(&mut hash);
        if !received.contents.insert(hash.finish()) {
            return Err(format!("member {member} received {content:?} twice, the second time at {offset}"));
        }
        received.messages.insert(offset, content.to_owned());
        if last >= offset {
            return Err(format!("member {member} received offset {offset} after {last}"));
        }
        Ok(())
    }

    /// The last offset that a member received, from which it recovers.
    pub(crate) fn position(&self, member: usize) -> u64 {
        self.received.get(&member).and_then(|all| all.messages.last_key_value()).map_or(0, |(last, _)| *last)
    }

    pub(crate) fn mark_read(&mut self, member: usize, sequence: u64) {
        let read = self.read.entry(member).or_default();
        *read = sequence.max(*read);
    }

    /// The messages of others after the member's read pointer. Uncertain ones are counted in the second number.
    pub(crate) fn unread(&self, member: usize) -> (u64, u64) {
        let read = self.read.get(&member).copied().unwrap_or(0);
        let after = self.acknowledged.range(read + 1..);
        (after.filter(|(_, (sender, _))| *sender != member).count() as u64, self.uncertain.len() as u64)
    }

    /// Whether a member has exactly the acknowledged messages, each at its sequence number.
    pub(crate) fn compare(&self, member: usize) -> Result<(), String> {
        let nothing = BTreeMap::new();
        let received = self.received.get(&member).map_or(&nothing, |received| &received.messages);
        for (sequence, (_, content)) in &self.acknowledged {
            match received.get(sequence) {
                Some(found) if found == content => {}
                Some(found) => {
                    return Err(format!(
                        "member {member} has {found:?} instead of {content:?} at {sequence}"
                    ));
                }
                None => {
                    return Err(format!(
                        "member {member} did not receive {content:?}, acknowledged at {sequence}"
                    ));
                }
            }
        }
        let unknown = |(offset, content): &(&u64, &String)| {
            !self.acknowledged.contains_key(*offset) && !self.uncertain.contains(*content)
        };
        match received.iter().find(unknown) {
            None => Ok(()),
            Some((offset, content)) => {
                Err(format!("member {member} received {content:?} at {offset}, which was not acknowledged"))
            }
        }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    pub(crate) fn delivered(&self) -> usize {
        self.received.values().map(|received| received.messages.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    /// Two messages of sender 0, acknowledged and received by member 1.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for (sequence, content) in [(3, "a"), (4, "b")] {
            ledger.acknowledge(0, sequence, content).unwrap();
            ledger.receive(1, sequence, content).unwrap();
        }
        ledger
    }

    #[test]
    fn complete_delivery_is_accepted() {
        let ledger = ledger();
        assert_eq!(ledger.compare(1), Ok(()));
        assert_eq!((ledger.position(1), ledger.acknowledged(), ledger.delivered()), (4, 2, 2));
    }

    #[test]
    fn lost_message_is_found() {
        let mut ledger = ledger();
        ledger.acknowledge(0, 5, "c").unwrap();
        assert!(ledger.compare(1).unwrap_err().contains("did not receive \"c\""));
        assert!(ledger.compare(2).unwrap_err().contains("did not receive \"a\""));
    }

    #[test]
    fn doubled_message_is_found() {
        let mut ledger = ledger();
        assert!(ledger.receive(1, 5, "b").unwrap_err().contains("twice"));
        assert!(ledger.acknowledge(0, 4, "c").unwrap_err().contains("was given to"));
    }

    #[test]
    fn reordered_message_is_found() {
        let mut ledger = ledger();
        assert!(ledger.receive(1, 2, "c").unwrap_err().contains("offset 2 after 4"));
        assert!(ledger.acknowledge(0, 2, "c").unwrap_err().contains("earlier message of its sender"));
    }

    #[test]
    fn message_that_nobody_sent_is_found() {
        let mut ledger = ledger();
        ledger.receive(1, 9, "x").unwrap();
        assert!(ledger.compare(1).unwrap_err().contains("was not acknowledged"));
        ledger.give_up("x");
        assert_eq!(ledger.compare(1), Ok(()));
    }

    #[test]
    fn unread_is_counted_after_the_read_pointer_without_own_messages() {
        let mut ledger = ledger();
        ledger.acknowledge(1, 5, "c").unwrap();
        assert_eq!([ledger.unread(0).0, ledger.unread(1).0, ledger.unread(2).0], [1, 2, 3]);
        ledger.mark_read(1, 3);
        ledger.mark_read(1, 1);
        assert_eq!(ledger.unread(1).0, 1);
    }
}
