//! Ordered lists from the command line.

use crate::support::{Scratch, bad, good, json, lode, run, sound};

#[test]
fn lists_are_made_filled_moved_and_deleted() {
    let scratch = Scratch::new();
    let disk = scratch.disk("64MiB");
    for (place, number) in [(&[][..], "1"), (&["--first"], "2"), (&["--after", "2"], "3")] {
        let made = good(lode(&["list", "create", "--block-size", "1KiB", "--compress", "lz4"]).arg(&disk).args(place));
        assert_eq!(made.trim(), number);
    }
    let order = || json(lode(&["list", "show", "--json"]).arg(&disk));
    let lists = |shown: &serde_json::Value| shown.as_array().unwrap().iter().map(|list| list["list"].clone()).collect();
    let numbers: Vec<serde_json::Value> = lists(&order());
    assert_eq!(numbers, [2, 3, 1]);
    let file = scratch.file("content", 5 << 10, 3);
    good(lode(&["list", "append"]).arg(&disk).arg("3").arg(&file));
    good(lode(&["list", "append"]).arg(&disk).arg("3").arg(&file));
    let once = std::fs::read(&file).unwrap();
    assert_eq!(run(lode(&["list", "read"]).arg(&disk).arg("3")).stdout, [once.clone(), once].concat());
    assert_eq!(json(lode(&["list", "blocks", "--json"]).arg(&disk).arg("3")).as_array().unwrap().len(), 10);
    good(lode(&["list", "move"]).arg(&disk).args(["3", "--after", "1"]));
    let shown = order();
    assert_eq!((&shown[2]["list"], &shown[2]["blocks"]), (&serde_json::json!(3), &serde_json::json!(10)));
    assert!(good(lode(&["list", "show"]).arg(&disk)).contains("lz4"));
    good(lode(&["snapshot", "create", "--lists"]).arg(&disk).arg("before"));
    assert_eq!(json(lode(&["snapshot", "list", "--json"]).arg(&disk))[0]["lists"], serde_json::json!(true));
    good(lode(&["list", "delete"]).arg(&disk).arg("3"));
    let seen = run(lode(&["list", "read", "--snapshot", "before"]).arg(&disk).arg("3"));
    assert_eq!(seen.stdout, std::fs::read(&file).unwrap().repeat(2));
    assert_eq!(json(lode(&["list", "show", "--json", "--snapshot", "before"]).arg(&disk)).as_array().unwrap().len(), 3);
    assert!(bad(lode(&["list", "show", "--snapshot", "none"]).arg(&disk), 3).contains("no snapshot named none"));
    good(lode(&["volume", "create", "--size", "1MiB"]).arg(&disk).arg("data"));
    good(lode(&["snapshot", "create", "--volume", "data"]).arg(&disk).arg("data-only"));
    for asked in [&["list", "show"][..], &["list", "blocks"], &["list", "read"]] {
        let number = ["1"].iter().filter(|_| asked[1] != "show");
        let refused = bad(lode(asked).args(["--snapshot", "data-only"]).arg(&disk).args(number), 3);
        assert!(refused.contains("snapshot data-only has no ordered lists in it"), "{refused}");
    }
    good(lode(&["list", "create", "--near", "--no-cluster", "--after", "1"]).arg(&disk));
    let shown = &order()[2];
    assert_eq!((&shown["near"], &shown["cluster"]), (&serde_json::json!(true), &serde_json::json!(false)));
    good(lode(&["list", "delete"]).arg(&disk).arg(shown["list"].to_string()));
    assert!(bad(lode(&["list", "read"]).arg(&disk).arg("3"), 3).contains("no ordered list 3"));
    assert_eq!(order().as_array().unwrap().len(), 2);
    sound(&disk);
}

#[test]
fn a_scattered_volume_is_put_back_in_order() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let file = scratch.file("content", 8 << 20, 5);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    assert!(good(lode(&["recluster"]).arg(&disk)).starts_with("data: 0 B moved"));
    assert!(bad(lode(&["recluster"]).arg(&disk).arg("none"), 3).contains("no volume named none"));
    sound(&disk);
}
