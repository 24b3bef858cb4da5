//! Operation names (`operationId`), used by generated clients as function names. They derive from method and path, so they are unique and
//! independent of handler names.

/// `GET /v1/tasks/{task}/rounds` is `list_task_rounds`, `POST /v1/tasks/{task}/pause` is `pause_task`.
pub(super) fn operation(method: &str, path: &str, is_list: bool) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | "v1")).collect();
    let is_variable = |part: &&str| part.starts_with('{');
    // A word followed by a variable is singular.
    let named = parts.iter().enumerate().filter(|(_, part)| !is_variable(part));
    let words: Vec<_> = named
        .map(|(at, part)| match parts.get(at + 1).is_some_and(is_variable) {
            true => one_of(part),
            false => (*part).to_owned(),
        })
        .collect();
    let ends_with_variable = parts.last().is_some_and(is_variable);
    let subject = || words.join("_");
    let name = match (method, words.as_slice()) {
        ("get", _) if is_list => format!("list_{}", subject()),
        // An action is the last word of a path, after its object.
        ("post", [of @ .., action])
            if parts.len() > 1 && !ends_with_variable && is_variable(&parts[parts.len() - 2]) =>
        {
            format!("{action}_{}", of.join("_"))
        }
        ("post", [of @ .., many]) => match (one_of(many), of) {
            (one, []) if one == *many => one,
            (one, _) => [&["create".to_owned()], of, &[one]].concat().join("_"),
        },
        (method, _) => format!("{method}_{}", subject()),
    };
    name.replace(['-', '.'], "_")
}

/// The singular: `deliveries` becomes `delivery`.
fn one_of(many: &str) -> String {
    match (many.strip_suffix("ies"), many.strip_suffix('s')) {
        (Some(stem), _) => format!("{stem}y"),
        (None, Some(one)) => one.to_owned(),
        (None, None) => many.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::operation;

    #[test]
    fn names_follow_from_method_and_path() {
        for (method, path, is_list, name) in [
            ("get", "/v1/tasks", true, "list_tasks"),
            ("post", "/v1/tasks", false, "create_task"),
            ("get", "/v1/tasks/{task}", false, "get_task"),
            ("post", "/v1/tasks/{task}/pause", false, "pause_task"),
            ("get", "/v1/tasks/{task}/rounds", true, "list_task_rounds"),
            ("get", "/v1/tasks/{task}/rounds/{round}", false, "get_task_round"),
            ("post", "/v1/tasks/{task}/models/{version}/pin", false, "pin_task_model"),
            ("get", "/v1/tasks/{task}/models/{version}/parameters", false, "get_task_model_parameters"),
            (
                "put",
                "/v1/tasks/{task}/rounds/{round}/masked-inputs/{participant}",
                false,
                "put_task_round_masked_input",
            ),
            ("get", "/v1/tasks/{task}/rounds/{round}/deliveries/{participant}", false, "get_task_round_delivery"),
            ("post", "/v1/enrollment-tokens", false, "create_enrollment_token"),
            ("post", "/v1/operator-tokens/{token}/revoke", false, "revoke_operator_token"),
            ("post", "/v1/check-in", false, "check_in"),
            ("delete", "/v1/sign-ins/current", false, "delete_sign_ins_current"),
            ("get", "/openapi.json", false, "get_openapi_json"),
        ] {
            assert_eq!(operation(method, path, is_list), name, "{method} {path}");
        }
    }
}
