//! `lode bench` runs, and its JSON is what scripts expect. The figures of a short run mean nothing.

use crate::support::{Scratch, bad, lode, run};

#[test]
fn a_quick_bench_prints_the_promised_json() {
    let scratch = Scratch::new();
    for name in ["commit1", "read-hot", "unit", "unit-overhead", "bytes"] {
        let mut command = lode(&["bench", name, "--json", "--quick", "--rounds", "2", "--dir"]);
        let output = run(command.arg(scratch.path(".")));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["name"], name);
        let cases = report["cases"].as_array().unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            assert!(case["lode"].as_f64().unwrap() >= 0.0 || name.starts_with("unit"), "{case}");
            assert!(case["pass"].is_boolean() && case["bar"].is_number() && case["ratio"].is_number(), "{case}");
            assert!(["higher", "lower"].contains(&case["better"].as_str().unwrap()), "{case}");
        }
    }
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), 0, "scratch files are gone");
}

#[test]
fn an_unknown_bench_is_refused() {
    assert!(bad(&mut lode(&["bench", "nonsense"]), 2).contains("commit1x4"));
}
