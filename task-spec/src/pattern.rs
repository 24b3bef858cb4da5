//! Patterns over tensor names.

/// Whether a pattern matches a whole name: `*` is any run of characters (also none, also dots), `?` is any one character,
/// all else is itself.
#[must_use]
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
}

/// Matches a whole name. Only the last star is ever reconsidered, which is enough and takes at most
/// `pattern.len() * name.len()` steps.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                last_star = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match last_star {
                Some((after, start)) => {
                    last_star = Some((after, start + 1));
                    (p, n) = (after, start + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}
