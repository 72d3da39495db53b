//! The map from slots to masters, from `CLUSTER SLOTS`.

use hob_commands::SLOTS;
use redis::{Cmd, FromRedisValue, Value};

use crate::address::Host;
use crate::error::{Error, Result};

const NO_OWNER: u16 = u16::MAX;

/// The owner of every slot.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotMap {
    masters: Vec<Host>,
    owners: Box<[u16]>,
}

impl SlotMap {
    pub(crate) fn question() -> Cmd {
        redis::cmd("CLUSTER").arg("SLOTS").take()
    }

    /// Reads the answer of the node `asked`. If a node does not report its own host, the host of `asked` is used.
    pub(crate) fn read(answer: Value, asked: &Host) -> Result<Self> {
        let ranges = Vec::<Vec<Value>>::from_redis_value(answer).map_err(Error::reply)?;
        let mut map = Self { masters: Vec::new(), owners: vec![NO_OWNER; usize::from(SLOTS)].into() };
        for range in ranges {
            map.add(range, asked)?;
        }
        if map.masters.is_empty() {
            return Err(Error::reply("the Cluster does not serve any slot yet"));
        }
        Ok(map)
    }

    fn add(&mut self, range: Vec<Value>, asked: &Host) -> Result<()> {
        let mut range = range.into_iter();
        let mut field = || range.next().ok_or_else(|| Error::reply("an entry of CLUSTER SLOTS is too short"));
        let first = usize::from_redis_value(field()?).map_err(Error::reply)?;
        let last = usize::from_redis_value(field()?).map_err(Error::reply)?;
        let master = Vec::<Value>::from_redis_value(field()?).map_err(Error::reply)?;
        let [name, port, ..] = &master[..] else {
            return Err(Error::reply("a master in CLUSTER SLOTS has no address"));
        };
        let name = Option::<String>::from_redis_value(name.clone()).map_err(Error::reply)?;
        let name = name.filter(|name| !name.is_empty() && name != "?").unwrap_or_else(|| asked.name.clone());
        let host = Host { name, port: u16::from_redis_value(port.clone()).map_err(Error::reply)? };
        let index = self.masters.iter().position(|known| *known == host).unwrap_or_else(|| {
            self.masters.push(host);
            self.masters.len() - 1
        });
        let index = u16::try_from(index).map_err(Error::reply)?;
        let slots = self
            .owners
            .get_mut(first..=last)
            .ok_or_else(|| Error::reply("a slot in CLUSTER SLOTS is out of range"))?;
        slots.fill(index);
        Ok(())
    }

    pub(crate) fn masters(&self) -> &[Host] {
        &self.masters
    }

    /// The master of a slot, if it has one.
    pub(crate) fn owner(&self, slot: u16) -> Option<&Host> {
        self.masters.get(usize::from(self.owners[usize::from(slot)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64, name: &str, port: i64) -> Value {
        let node = Value::Array(vec![
            Value::BulkString(name.into()),
            Value::Int(port),
            Value::BulkString("id".into()),
        ]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    fn asked() -> Host {
        Host { name: "seed".into(), port: 1 }
    }

    #[test]
    fn slots_belong_to_the_master_of_their_range() {
        let answer =
            Value::Array(vec![entry(0, 100, "a", 1), entry(101, 16000, "", 2), entry(16001, 16001, "a", 1)]);
        let map = SlotMap::read(answer, &asked()).unwrap();
        assert_eq!(map.masters().len(), 2);
        assert_eq!(map.owner(100).unwrap().name, "a");
        assert_eq!(map.owner(101).unwrap(), &Host { name: "seed".into(), port: 2 });
        assert_eq!(map.owner(16001).unwrap().name, "a");
        assert_eq!(map.owner(16383), None, "no master serves it");
    }

    #[test]
    fn invalid_slot_map_is_refused() {
        let far = Value::Array(vec![entry(0, 20000, "a", 1)]);
        for answer in
            [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Array(vec![Value::Int(1)])]), far]
        {
            assert!(SlotMap::read(answer, &asked()).is_err());
        }
    }
}
