use super::*;

#[test]
fn secrets_are_not_shown() {
    let shown = |name, value: &str| Flag { name, values: vec![value.to_owned()] }.to_string();
    assert_eq!(shown("--redis-password", "x"), "--redis-password '***'");
    assert_eq!(shown("--xds-header", "authorization=Bearer x"), "--xds-header 'authorization=***'");
    assert_eq!(shown("--store", "redis://u:p@h:1"), "--store 'redis://u:***@h:1'");
    assert_eq!(shown("--store", "redis-sentinel://m@h:1"), "--store redis-sentinel://m@h:1");
    assert_eq!(shown("--statsd-rewrite", "it's $1"), r"--statsd-rewrite 'it'\''s $1'");
}

#[test]
fn the_table_is_whole() {
    let mut names: Vec<_> = VARIABLES.iter().map(|variable| variable.name).collect();
    assert_eq!(names.len(), 116);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 116, "no name stands twice");
    for variable in VARIABLES.iter().filter(|variable| !variable.default.is_empty()) {
        assert_eq!(variable.expected_instead_of(variable.default), None, "{}", variable.name);
    }
}
