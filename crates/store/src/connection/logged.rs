//! What the log says about a connection. Only changes are logged: a failover takes many attempts to reconnect.

/// The last state of a connection that was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// Nothing, or that the connection is back.
    Nothing,
    Lost,
}

/// Whether a state differs from the one that was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    New,
    Known,
}

impl Logged {
    pub(crate) fn lost(&mut self) -> Change {
        self.becomes(Self::Lost)
    }

    pub(crate) fn connected(&mut self) -> Change {
        self.becomes(Self::Nothing)
    }

    fn becomes(&mut self, state: Self) -> Change {
        if std::mem::replace(self, state) == state { Change::Known } else { Change::New }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_new() {
        let mut logged = Logged::Nothing;
        assert_eq!(logged.connected(), Change::Known, "the first connection is not a change");
        assert_eq!(
            (logged.lost(), logged.lost(), logged.lost()),
            (Change::New, Change::Known, Change::Known)
        );
        assert_eq!((logged.connected(), logged.connected()), (Change::New, Change::Known));
        assert_eq!(logged.lost(), Change::New);
    }
}
