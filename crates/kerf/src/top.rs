//! `kerf top`: the nodes of a cluster in a terminal, and why each stays or would go.

use std::{
    fs, io,
    io::Write,
    path::Path,
    process::ExitCode,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use kerf_view::{
    Action, Overlay, Palette, Ui, View, picture,
    screen::{self, Screen},
    svg,
};

use crate::{
    cli::TopOptions,
    explain,
    plan::{Objects, PlanError},
};
use follow::Following;

mod assembly;
mod document;
mod follow;

#[cfg(all(test, feature = "simulate"))]
pub(crate) use document::Document;

/// Keys are answered within this time, whatever the cluster does.
const FRAME: Duration = Duration::from_millis(100);
/// Grace periods and budgets end by themselves: a cluster in which nothing happens is judged again after this time.
const STALE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error(transparent)]
    Look(#[from] PlanError),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
    #[error("cannot write pictures into {directory}: {source}")]
    Pictures { directory: String, source: io::Error },
}

pub(crate) fn top(options: &TopOptions) -> ExitCode {
    match show(options) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough (`kerf top -o json | head`) is not an error.
        Err(TopError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(TopError::Look(error)) => error.report(),
        Err(error) => {
            eprintln!("kerf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A cluster as it was read, and what is shown of it.
pub(crate) struct Seen {
    view: View,
    /// `None`: there is nothing to explain.
    objects: Option<Objects>,
}

fn show(options: &TopOptions) -> Result<(), TopError> {
    let following = match options.sources.files.as_slice() {
        [] => Some(Following::start(&options.sources.target)?),
        _ => None,
    };
    let first = assembly::look(options, following.as_ref())?;
    if let Some(directory) = &options.pictures {
        return pictures(&first.view, directory).map_err(|source| TopError::Pictures {
            directory: directory.display().to_string(),
            source,
        });
    }
    if screen::is_there() && !options.once && !options.json {
        return Ok(watch(options, first, following)?);
    }
    for warning in &options.sources.warnings {
        eprintln!("kerf: {warning}");
    }
    print(options, first, following.as_ref())
}

/// One table; or documents, one per line, for as long as somebody reads them.
fn print(options: &TopOptions, first: Seen, following: Option<&Following>) -> Result<(), TopError> {
    let mut seen = first;
    loop {
        let text = if options.json {
            document::line(&seen.view).map_err(io::Error::from)?
        } else {
            kerf_view::plain(&seen.view, &Ui::default())
        };
        io::stdout().lock().write_all(text.as_bytes())?;
        let Some(following) = following.filter(|_| options.json && !options.once) else {
            return Ok(());
        };
        thread::sleep(options.interval);
        following.wait(STALE);
        seen = assembly::look(options, Some(following))?;
    }
}

/// The view in the terminal, until the user quits. The cluster is judged on a thread of its own, so that keys never wait for it.
/// That thread ends with the process.
fn watch(options: &TopOptions, first: Seen, following: Option<Following>) -> io::Result<()> {
    let (sender, looks) = mpsc::channel();
    if let Some(following) = following {
        let options = options.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(options.interval);
                following.wait(STALE);
                if sender.send(assembly::look(&options, Some(&following))).is_err() {
                    return;
                }
            }
        });
    }
    in_terminal(options, first, &looks)
}

fn in_terminal(
    options: &TopOptions,
    mut seen: Seen,
    looks: &Receiver<Result<Seen, PlanError>>,
) -> io::Result<()> {
    let mut screen = Screen::open()?;
    let mut ui = Ui::default();
    let mut newest = None;
    loop {
        screen.draw(|area, buffer, palette| ui.draw(&seen.view, area, buffer, palette))?;
        let drawn = Instant::now();
        while let Some(left) = FRAME.checked_sub(drawn.elapsed()) {
            let Some(key) = screen.key(left)? else { break };
            match ui.press(key, &seen.view) {
                Action::Quit => return Ok(()),
                Action::Draw => {}
                Action::Explain(node) => {
                    ui.overlay = Some(Overlay::text(&explained(options, &seen, &node)));
                }
            }
            screen.draw(|area, buffer, palette| ui.draw(&seen.view, area, buffer, palette))?;
        }
        newest = looks.try_iter().last().or(newest);
        if ui.paused || ui.overlay.is_some() {
            continue;
        }
        match newest.take() {
            Some(Ok(look)) => seen = look,
            Some(Err(error)) => seen.view.notes = vec![error.to_string()],
            None => {}
        }
    }
}

fn explained(options: &TopOptions, seen: &Seen, node: &str) -> String {
    let text = seen
        .objects
        .as_ref()
        .and_then(|objects| explain::node_text(objects, &options.sources.settings, node));
    text.unwrap_or_else(|| format!("Node {node} is gone."))
}

/// The view at three widths, for the documents.
fn pictures(view: &View, directory: &Path) -> io::Result<()> {
    for (width, height) in [(80, 24), (120, 24), (240, 24)] {
        let drawn = picture(width, height, |area, buffer| {
            Ui::default().draw(view, area, buffer, Palette::COLOURED);
        });
        fs::write(directory.join(format!("top-{width}.svg")), svg::still(&drawn))?;
    }
    Ok(())
}
