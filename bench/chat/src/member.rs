//! The members of rooms.

/// Identifies a member by its room and its number in the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberId {
    pub(crate) room: usize,
    pub(crate) number: usize,
}

impl MemberId {
    pub(crate) fn room_name(self) -> String {
        format!("room{}", self.room)
    }

    pub(crate) fn user(self) -> String {
        format!("user{}-{}", self.room, self.number)
    }

    /// The first member of each room sends the messages.
    pub(crate) fn is_sender(self) -> bool {
        self.number == 0
    }
}
