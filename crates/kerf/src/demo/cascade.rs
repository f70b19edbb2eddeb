//! The story of the cascade: two clusters under the same load, one with Karpenter's consolidation policy and one with Kerf's
//! defaults.
//!
//! Each lives on a thread and a runtime of its own, in virtual time, and goes on only when it is asked to. So both are always
//! at the same moment, whatever the speed.

use std::{
    fs, io,
    io::Write,
    path::Path,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kerf_simulation::{DEFAULTS, Play, PlayError, Policy, Scenario, Summary};
use kerf_testbed::Testbed;
use kerf_view::{
    Buffer, Happening, Kind, Palette, Side, Stage, picture,
    screen::{self, Screen},
    svg,
};
use serde::Serialize;

use super::{DemoError, Pace, adapted, scene};
use crate::{
    cli::{DemoOptions, Format},
    output,
};

/// Who plays: a name for people, and the policy of `kerf simulate`.
const SIDES: [(&str, &str); 2] = [("Karpenter's policy", "parity"), ("Kerf's defaults", DEFAULTS)];

/// The scenario that docs/churn-controls.md measures, and the part of it that is shown: as much as an unoptimised build
/// computes in seconds.
const SCENARIO: &str = include_str!("../../../../examples/simulate/off-peak-cascade.yaml");
const LENGTH: &str = "1h";
const STORY: &str =
    "The load of an evening shrinks and never rests: the same pods, prices and minutes for both.";

/// A line is printed whenever this much time has passed.
const STRIDE: Duration = Duration::from_mins(5);

pub(super) fn play(options: &DemoOptions) -> Result<(), DemoError> {
    let mut scenario = Scenario::from_yaml(SCENARIO, "the demo")?;
    scenario.length = LENGTH.parse().unwrap_or(scenario.length);
    let scenario = adapted(scenario, options);
    let begun = Instant::now();
    let mut duel = Duel::start(&scenario)?;
    if let Some(directory) = &options.pictures {
        return pictures(duel, directory);
    }
    if options.json {
        duel.finish()?;
        let text = output::text(&duel.report()?, Format::Json, |_| String::new());
        return Ok(output::print(&text.map_err(io::Error::other)?)?);
    }
    // How long it took says something where nobody was shown anything.
    let took = if screen::is_there() {
        show(&mut duel, options)?;
        String::new()
    } else {
        tell(&mut duel, options)?;
        format!("(Computed in {:.1} s.)\n", begun.elapsed().as_secs_f64())
    };
    let text = format!("\n{}\n\n{}\n{took}", duel.table()?, duel.verdict()?);
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// In the terminal.
fn show(duel: &mut Duel, options: &DemoOptions) -> Result<(), DemoError> {
    let mut pace = Pace::of(options, duel.length);
    let mut screen = Screen::open()?;
    while duel.elapsed < duel.length {
        let drawn = Instant::now();
        duel.advance(pace.stride())?;
        let stage = duel.stage(Some(&pace));
        screen.draw(|area, buffer, palette| stage.draw(area, buffer, palette))?;
        if pace.keys(&screen, drawn)? {
            break;
        }
    }
    Ok(())
}

/// A line for every few minutes.
fn tell(duel: &mut Duel, options: &DemoOptions) -> Result<(), DemoError> {
    let mut to = io::stdout();
    writeln!(to, "{STORY}\n")?;
    let [left, right] = SIDES.map(|(name, _)| name.to_uppercase());
    writeln!(to, "          {left:<45} {right}")?;
    while duel.elapsed < duel.length {
        let begun = Instant::now();
        duel.advance(STRIDE)?;
        let [left, right] = [&duel.sides[0], &duel.sides[1]].map(line);
        writeln!(to, "{}  {left:<45} {right}", duel.now.strftime("%H:%M:%S"))?;
        if let Some(speed) = options.speed {
            thread::sleep((STRIDE / speed).saturating_sub(begun.elapsed()));
        }
    }
    Ok(())
}

/// Nodes that stay are told of together: there are many at a time, and what goes is what there is to see.
fn gathered(told: impl Iterator<Item = Happening>) -> Vec<Happening> {
    let mut kept: Vec<Happening> = Vec::new();
    for happening in told {
        match kept.last_mut() {
            Some(last) if last.kind == Kind::Refuse && happening.kind == Kind::Refuse => {
                last.count += happening.count;
            }
            _ => kept.push(happening),
        }
    }
    kept.drain(..kept.len().saturating_sub(REMEMBERED));
    kept
}

/// More lines than a terminal has.
const REMEMBERED: usize = 200;

fn line(side: &Side) -> String {
    format!(
        "{:>2} nodes {:>4} launched {:>4} evicted {:>6}",
        side.view.nodes.len(),
        side.launched,
        side.evictions,
        format!("${:.2}", side.cost)
    )
}

/// Both clusters at one moment.
struct Duel {
    actors: Vec<Actor>,
    sides: Vec<Side>,
    now: Timestamp,
    seed: u64,
    elapsed: Duration,
    length: Duration,
}

/// What it came to, for programs.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    scenario: &'static str,
    seed: u64,
    hours: f64,
    policies: Vec<Summary>,
    /// One sentence with the figures.
    verdict: String,
}

impl output::Answer for Report {
    const KIND: &'static str = "DemoComparison";
}

impl Duel {
    fn start(scenario: &Scenario) -> Result<Self, DemoError> {
        let mut actors = Vec::new();
        for (name, policy) in SIDES {
            let policy = Policy::named(&[policy.to_owned()], &[])?.remove(0);
            actors.push(Actor::start(name, scenario.clone(), policy));
        }
        Ok(Self {
            actors,
            sides: Vec::new(),
            now: scenario.start,
            seed: scenario.seed,
            elapsed: Duration::ZERO,
            length: scenario.length.as_duration(),
        })
    }

    /// Lets both live for so long. They compute at the same time.
    fn advance(&mut self, by: Duration) -> Result<(), DemoError> {
        if by.is_zero() && !self.sides.is_empty() {
            return Ok(());
        }
        self.elapsed = (self.elapsed + by).min(self.length);
        for actor in &self.actors {
            actor.ask(Ask::Live(self.elapsed));
        }
        for (at, actor) in self.actors.iter().enumerate() {
            let Answer::Side(now, mut side) = actor.answer()? else { return actor.lost() };
            self.now = now;
            if let Some(before) = self.sides.get_mut(at) {
                side.history = std::mem::take(&mut before.history);
                let told = before.happenings.iter().chain(&side.happenings).cloned();
                side.happenings = gathered(told);
                *before = *side;
            } else {
                self.sides.push(*side);
            }
            self.sides[at].remember(self.elapsed, self.length);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DemoError> {
        self.advance(self.length)
    }

    fn summaries(&self) -> Result<Vec<Summary>, DemoError> {
        let summary = |actor: &Actor| {
            actor.ask(Ask::Sum);
            match actor.answer()? {
                Answer::Summary(summary) => Ok(*summary),
                Answer::Side(..) => actor.lost(),
            }
        };
        self.actors.iter().map(summary).collect()
    }

    fn stage(&self, pace: Option<&Pace>) -> Stage {
        Stage {
            story: STORY.to_owned(),
            now: self.now,
            elapsed: self.elapsed,
            length: self.length,
            speed: pace.map(|pace| pace.speed),
            paused: pace.is_some_and(|pace| pace.paused),
            hint: None,
            sides: self.sides.clone(),
            verdict: None,
        }
    }

    /// The figures beside each other.
    fn table(&self) -> Result<String, DemoError> {
        let summaries = self.summaries()?;
        let row = |name: &str, of: &dyn Fn(&Summary) -> String| {
            let cells: Vec<_> = summaries.iter().map(|it| format!("{:>18}", of(it))).collect();
            format!("  {name:<34}{}", cells.concat())
        };
        let names = SIDES.map(|(name, _)| format!("{name:>18}")).concat();
        Ok([
            format!("  {:<34}{names}", ""),
            row("pods evicted", &|it| it.evictions.to_string()),
            row("  of them again within an hour", &|it| it.restarted_often.to_string()),
            row("nodes launched", &|it| it.launched.to_string()),
            row("nodes gone within 30 minutes", &|it| it.short_lived.to_string()),
            row("node-hours", &|it| format!("{:.1}", it.node_hours)),
            row("of the CPU requested by pods", &|it| format!("{:.0}%", it.cpu_fill * 100.0)),
            row("money", &|it| format!("${:.2}", it.cost)),
        ]
        .join("\n"))
    }

    fn verdict(&self) -> Result<String, DemoError> {
        let summaries = self.summaries()?;
        let [karpenter, kerf] = summaries.as_slice() else { return Ok(String::new()) };
        Ok(sentence(karpenter, kerf, self.elapsed, self.seed))
    }

    fn report(&self) -> Result<Report, DemoError> {
        Ok(Report {
            scenario: "off-peak-cascade",
            seed: self.seed,
            hours: self.elapsed.as_secs_f64() / 3600.0,
            verdict: self.verdict()?,
            policies: self.summaries()?,
        })
    }
}

/// What it came to, whoever did better.
fn sentence(karpenter: &Summary, kerf: &Summary, lived: Duration, seed: u64) -> String {
    let minutes = lived.as_secs() / 60;
    let money = (kerf.cost / karpenter.cost - 1.0) * 100.0;
    let money = match money {
        percent if percent.abs() < 1.0 => "the same money".to_owned(),
        percent if percent < 0.0 => format!("{:.0}% less money", -percent),
        percent => format!("{percent:.0}% more money"),
    };
    format!(
        "In {minutes} minutes of the same load Karpenter's policy evicted {} pods and Kerf's defaults {}, for {money} \
         (${:.2} and ${:.2}); one seed ({seed}) of one scenario.",
        karpenter.evictions, kerf.evictions, karpenter.cost, kerf.cost
    )
}

/// The demo as it moves, and its last picture at three widths.
fn pictures(mut duel: Duel, directory: &Path) -> Result<(), DemoError> {
    const FRAMES: u32 = 48;
    let mut frames: Vec<(Buffer, Duration)> = Vec::new();
    let drawn = |stage: &Stage, width, height| {
        picture(width, height, |area, buffer| stage.draw(area, buffer, Palette::COLOURED))
    };
    for _ in 0..FRAMES {
        duel.advance(duel.length / FRAMES)?;
        frames.push((drawn(&duel.stage(None), 120, 34), Duration::from_millis(400)));
    }
    let mut last = duel.stage(None);
    last.verdict = Some(duel.verdict()?);
    frames.push((drawn(&last, 120, 34), Duration::from_secs(6)));
    let stills = [80, 120, 240]
        .map(|width| (format!("demo-{width}.svg"), svg::still(&drawn(&last, width, 34))));
    let files = stills.into_iter().chain([("demo.svg".to_owned(), svg::moving(&frames))]);
    for (name, text) in files {
        fs::write(directory.join(name), text).map_err(|source| DemoError::Pictures {
            directory: directory.display().to_string(),
            source,
        })?;
    }
    Ok(())
}

/// A cluster that goes on when it is asked to.
struct Actor {
    name: &'static str,
    asks: Sender<Ask>,
    answers: Receiver<Result<Answer, PlayError>>,
}

enum Ask {
    /// Until this time after the beginning.
    Live(Duration),
    Sum,
}

enum Answer {
    Side(Timestamp, Box<Side>),
    Summary(Box<Summary>),
}

impl Actor {
    fn start(name: &'static str, scenario: Scenario, policy: Policy) -> Self {
        let (asks, questions) = mpsc::channel();
        let (replies, answers) = mpsc::channel();
        thread::spawn(move || {
            let lived =
                Testbed::in_virtual_time(live(name, &scenario, &policy, &questions, &replies));
            let lived = lived.map_err(PlayError::Runtime);
            if let Err(error) = lived.and_then(|lived| lived) {
                let _ = replies.send(Err(error));
            }
        });
        Self { name, asks, answers }
    }

    fn ask(&self, ask: Ask) {
        // Where nobody listens any more, the answer says why.
        let _ = self.asks.send(ask);
    }

    fn answer(&self) -> Result<Answer, DemoError> {
        match self.answers.recv() {
            Ok(answer) => Ok(answer?),
            Err(_) => self.lost(),
        }
    }

    fn lost<T>(&self) -> Result<T, DemoError> {
        Err(DemoError::Lost { name: self.name })
    }
}

/// Ends when nobody asks any more. Waiting for a question blocks the whole cluster, which is the point.
async fn live(
    name: &str,
    scenario: &Scenario,
    policy: &Policy,
    questions: &Receiver<Ask>,
    replies: &Sender<Result<Answer, PlayError>>,
) -> Result<(), PlayError> {
    let mut play = Play::start(scenario, policy).await?;
    let mut told = 0;
    while let Ok(ask) = questions.recv() {
        let answer = match ask {
            Ask::Live(until) => {
                play.until(until).await?;
                let ledger = play.ledger();
                let side = scene::side(ledger, name, told);
                told = ledger.decisions().len();
                Answer::Side(ledger.now(), Box::new(side))
            }
            Ask::Sum => Answer::Summary(Box::new(Summary::of(&play))),
        };
        if replies.send(Ok(answer)).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_stay_are_told_of_together() {
        let told = [Kind::Refuse, Kind::Refuse, Kind::Remove, Kind::Refuse].map(|kind| Happening {
            at: Timestamp::UNIX_EPOCH,
            kind,
            text: String::new(),
            count: 1,
        });
        let counts: Vec<_> = gathered(told.into_iter()).iter().map(|it| it.count).collect();
        assert_eq!(counts, [2, 1, 1]);
    }

    #[test]
    fn the_sentence_says_who_paid_more() {
        let summary = |evictions, cost| Summary { evictions, cost, ..Summary::default() };
        let hour = Duration::from_hours(1);
        for (karpenter, kerf, money) in [
            (2.0, 2.01, "the same money ($2.00 and $2.01)"),
            (2.0, 2.2, "10% more money ($2.00 and $2.20)"),
            (2.0, 1.9, "5% less money ($2.00 and $1.90)"),
        ] {
            let said = sentence(&summary(100, karpenter), &summary(20, kerf), hour, 7);
            let begins = "In 60 minutes of the same load Karpenter's policy evicted 100 pods and Kerf's defaults 20, for";
            assert!(said.starts_with(begins), "{said}");
            assert!(said.ends_with(&format!("{money}; one seed (7) of one scenario.")), "{said}");
        }
    }
}
