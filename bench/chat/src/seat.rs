//! A place in a room.

/// Which member of which room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) room: usize,
    pub(crate) number: usize,
}

impl Seat {
    pub(crate) fn room_name(self) -> String {
        format!("room{}", self.room)
    }

    pub(crate) fn user(self) -> String {
        format!("user{}-{}", self.room, self.number)
    }

    /// The first one of each room talks.
    pub(crate) fn talks(self) -> bool {
        self.number == 0
    }
}
