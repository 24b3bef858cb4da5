//! Queries made of optional parameters.

use std::fmt::Display;

/// The parameters that were given, with their names.
pub(crate) fn given<const N: usize>(parameters: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The values of one parameter, separated by commas; `None` for an empty list, which means all.
pub(crate) fn listed<T: Display>(values: &[T]) -> Option<String> {
    let names: Vec<_> = values.iter().map(T::to_string).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// The text for an empty list: `nothing`, or another one if the query has filters.
pub(crate) fn none_of(query: &[(&'static str, String)], nothing: &'static str) -> &'static str {
    if query.is_empty() { nothing } else { "None is like that." }
}

#[cfg(test)]
mod tests {
    use wire::TaskStatus;

    use super::*;

    #[test]
    fn a_query_has_what_was_given() {
        let states = [TaskStatus::Active, TaskStatus::Paused];
        let none: [TaskStatus; 0] = [];
        let query = given([("state", listed(&states)), ("kind", listed(&none)), ("since", Some("5".to_owned()))]);
        assert_eq!(query, [("state", "ACTIVE,PAUSED".to_owned()), ("since", "5".to_owned())]);
        assert_eq!([none_of(&query, "no tasks"), none_of(&[], "no tasks")], ["None is like that.", "no tasks"]);
    }
}
