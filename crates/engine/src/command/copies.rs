//! Commands that copy or move a whole value to another key, or store a new one there.

use super::{Args, Options};
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::EventClass;

pub(super) fn rename(core: &mut Core, args: Args<'_>) -> CommandResult {
    move_key(core, args[1], args[2]).map(|()| Reply::OK)
}

pub(super) fn renamenx(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (from, to) = (args[1], args[2]);
    if core.keys.contains(from) && core.keys.contains(to) {
        return Ok(Reply::Int(0));
    }
    move_key(core, from, to).map(|()| Reply::Int(1))
}

fn move_key(core: &mut Core, from: &[u8], to: &[u8]) -> CommandResult<()> {
    if from == to {
        return if core.keys.contains(from) { Ok(()) } else { Err(Failure::NO_SUCH_KEY) };
    }
    let entry = core.keys.remove(from).ok_or(Failure::NO_SUCH_KEY)?;
    core.keys.remove(to);
    let deadline = entry.deadline();
    core.keys.put(to, entry.value, deadline);
    core.keys.changed(from, EventClass::Generic, "rename_from");
    core.keys.changed(to, EventClass::Generic, "rename_to");
    Ok(())
}

pub(super) fn copy(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (from, to) = (args[1], args[2]);
    let mut replace = false;
    let mut options = Options::after(args, 3);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "replace" => replace = true,
            "db" if int(options.value()?)? == 0 => {}
            "db" => return Err(Failure::new("ERR DB index is out of range")),
            _ => return Err(Failure::SYNTAX),
        }
    }
    if from == to {
        return Err(Failure::new("ERR source and destination objects are the same"));
    }
    core.keys.lookups.counted = true;
    let Some(entry) = core.keys.get(from) else { return Ok(Reply::Int(0)) };
    let (value, deadline) = (entry.value.clone(), entry.deadline());
    core.keys.lookups.counted = false;
    if core.keys.contains(to) && !replace {
        return Ok(Reply::Int(0));
    }
    core.keys.remove(to);
    core.keys.put(to, value, deadline);
    core.keys.changed(to, EventClass::Generic, "copy_to");
    Ok(Reply::Int(1))
}
