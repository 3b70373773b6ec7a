use super::*;

fn request() -> Request {
    Request {
        world: "mnt:[1] 2:3".into(),
        umask: 0o027,
        image: (7, u64::MAX),
        directory: OsString::from_vec(b"/home/\xff".to_vec()).into(),
        arguments: ["lode", "import", "", "a\nb"].map(OsString::from).to_vec(),
    }
}

#[test]
fn requests_come_back_as_they_were() {
    let bytes = request().encode().expect("short");
    let (head, body) = bytes.split_first_chunk().expect("long enough");
    assert_eq!(Request::body(head).expect("sound"), body.len());
    assert_eq!(Request::decode(body).expect("sound"), request());
}

#[test]
fn answers_come_back_as_they_were() {
    let answers = [
        Answer::Ready,
        Answer::Other,
        Answer::Input,
        Answer::Ask,
        Answer::Progress { done: 5, total: Some(6), what: "verifying".into() },
        Answer::Progress { done: u64::MAX, total: None, what: String::new() },
        Answer::Done { code: Code::Done, words: None },
        Answer::Done { code: Code::Denied, words: Some("no".into()) },
    ];
    for answer in answers {
        assert_eq!(Answer::read(&mut &answer.encode()[..]).expect("sound"), answer);
    }
}

#[test]
fn what_is_malformed_is_refused() {
    let bytes = request().encode().expect("short");
    let (head, body) = bytes.split_first_chunk::<HEAD>().expect("long enough");
    for (at, byte) in [(0, b'L'), (7, b'2'), (10, 0xff), (11, 1)] {
        let mut head = *head;
        head[at] = byte;
        Request::body(&head).expect_err("another magic, or too long");
    }
    for cut in
        [&body[..0], &body[..5], &body[..body.len() - 1], b"a\0b\0c\0d\0", b"a\x008\x001:2\0", b"a\x000\x001\0d\0"]
    {
        Request::decode(cut).expect_err("a part is missing or wrong");
    }
    for wrong in [&[0, 1, 0, 0, 0, 9][..], &[4, 3, 0, 0, 0, 1, 2, 3], &[5, 0, 0, 0, 0], &[5, 1, 0, 0, 0, 99], &[9; 5]] {
        Answer::read(&mut &wrong[..]).expect_err("no answer is like this");
    }
    let long = Request { arguments: vec!["a".repeat(REQUEST_MAX).into()], ..request() };
    assert_eq!(long.encode().expect_err("too long").kind(), ErrorKind::InvalidInput);
    let words = Some("w".repeat(1 << 17));
    let cut = Answer::Done { code: Code::Io, words }.encode();
    Answer::read(&mut &cut[..]).expect("cut to what may be sent");
}
