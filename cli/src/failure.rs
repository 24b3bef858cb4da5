//! Why a command fails: the operator client's failures, and those of data.

pub(crate) use operator_client::failure::{Exit, Failure, Outcome, chain};

/// The failure of a command that cannot use its data.
pub(crate) fn of_data(error: datasets::DataError) -> Failure {
    Failure::new(Exit::Data, chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let io = std::io::Error::other("disk on fire");
        let error = datasets::DataError::Read { path: "x".into(), source: io };
        assert_eq!(chain(&error), "cannot read x: disk on fire");
    }
}
