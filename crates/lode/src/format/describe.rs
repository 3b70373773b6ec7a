//! Prints the format from its declarations. `docs/FORMAT.md` is this text; a test fails if they differ.

use super::{header, object, records, root, stream, unit};
use crate::record::table;
macro_rules! tables {
    ($into:expr, $($path:path),* $(,)?) => {{
        $(
            {
                use $path as Declared;
                let name = stringify!($path).rsplit("::").next().unwrap_or_default().trim();
                table($into, name, Declared::SIZE, Declared::ABOUT, Declared::FIELDS);
            }
        )*
    }};
}

/// The whole format as a Markdown page.
pub fn describe() -> String {
    let mut text = String::from(include_str!("head.md"));
    text.push_str("\n## Batches\n");
    tables!(&mut text, header::Header, header::Trailer, header::FooterEntry);
    text.push_str("\n## Records of the stream\n");
    tables!(
        &mut text,
        records::RecordHead,
        records::Put,
        records::PutEntry,
        records::Discard,
        records::Freed,
        records::List,
        records::ListGone,
        records::Data,
        records::Commit,
        records::ZoneOpened,
        records::ZoneFreed,
    );
    text.push_str("\n## Roots\n");
    tables!(&mut text, root::Root, root::RootSegment);
    text.push_str("\n## Tables\n");
    tables!(
        &mut text,
        object::ObjectRef,
        object::ObjectHead,
        object::ObjectLeaf,
        object::SectionEntry,
        object::ZoneEntry
    );
    text.push_str("\n## Units with a barrier\n");
    tables!(
        &mut text,
        unit::UnitImage,
        unit::UnitList,
        unit::UnitStretch,
        unit::UnitCut,
        unit::UnitOperation,
        unit::UnitNumber,
        stream::StreamKept
    );
    text.push_str(include_str!("stream.md"));
    tables!(&mut text, stream::StreamHead, stream::StreamIdentity, stream::StreamPiece, stream::StreamEnd);
    text
}
