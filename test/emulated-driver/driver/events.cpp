// Events: marks in streams. A wait is for the record that is current when the wait is called.
#include "graph.h"

using namespace emu;

namespace {
Event *eventOf(Event *event, int &status) {
  status = machine.events.count(event) ? SUCCESS : INVALID_HANDLE;
  if (status) return nullptr;
  status = event->context->device->lost ? event->context->device->lost : event->context->poison;
  return status ? nullptr : event;
}

// Makes progress for a query; true when the event's record has been reached.
bool reached(Event *event) {
  if (!event->record) return true;
  const Point &point = event->record->point;
  if (point.stream->done < point.seq) stir(*point.stream);
  if (point.stream->done < point.seq) return false;
  machine.host.join(event->record->clock);
  return true;
}

int record(Event *event, u64 handle, unsigned flags) {
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  if (!eventOf(event, status)) return status;
  // Event and stream belong to one context.
  if (event->context != stream->context) return INVALID_HANDLE;
  if (stream->capture && !(flags & 1)) {
    event->capture = stream->capture;
    event->captureNode = -2;
    Task task;
    task.name = "a record";
    task.kind = "empty";
    const int submitted = submit(*stream, task);
    event->captureNode = stream->capture->last[stream->captureBranch];
    return submitted;
  }
  if (stream->capture) {
    Task task;
    task.name = "a record outside of the graph";
    task.kind = "record";
    const int submitted = submit(*stream, task);
    if (!submitted) stream->capture->graph->nodes.back().externalRecord = event;
    return submitted;
  }
  auto made = std::make_shared<Record>();
  Task task;
  task.name = "a record of event " + std::to_string(event->id);
  task.kind = "record";
  task.run = [made](Context *) {
    made->ns = machine.clockNs;
    return SUCCESS;
  };
  status = submit(*stream, task);
  made->point = {stream, stream->submitted};
  made->clock = stream->clock;
  event->record = made;
  event->capture = nullptr;
  return status;
}
} // namespace

EMU_API cuEventCreate(Event **event, unsigned flags) {
  ENTER(cuEventCreate, Entry::CurrentContext);
  // INTERPROCESS (4) demands DISABLE_TIMING (2).
  if (flags > 7 || ((flags & 4) && !(flags & 2))) return INVALID_VALUE;
  *event = new Event;
  (*event)->id = machine.nextEventId++;
  (*event)->context = current;
  (*event)->flags = flags;
  machine.events.insert(*event);
  return SUCCESS;
}

EMU_API cuEventDestroy_v2(Event *event) {
  ENTER(cuEventDestroy_v2, Entry::Driver);
  if (!machine.events.erase(event)) return INVALID_HANDLE;
  delete event;
  return SUCCESS;
}

EMU_API cuEventRecord(Event *event, u64 stream) {
  ENTER(cuEventRecord, Entry::Driver);
  return record(event, stream, 0);
}

EMU_API cuEventRecordWithFlags(Event *event, u64 stream, unsigned flags) {
  ENTER(cuEventRecordWithFlags, Entry::Driver);
  return record(event, stream, flags);
}

EMU_API cuStreamWaitEvent(u64 handle, Event *event, unsigned flags) {
  ENTER(cuStreamWaitEvent, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  // Stream and event may be of different devices.
  if (!eventOf(event, status)) return status;
  if (event->context != stream->context && machine.hasDefect("events-across-devices")) return NOT_SUPPORTED;
  if (flags & 1) {
    if (!stream->capture) return INVALID_VALUE;
    Task task;
    task.name = "a wait for an event outside of the graph";
    task.kind = "wait";
    const int submitted = submit(*stream, task);
    if (!submitted) stream->capture->graph->nodes.back().externalWait = event;
    return submitted;
  }
  if (event->capture) {
    // A stream that waits for an event of a capture joins the capture.
    const std::shared_ptr<Capture> capture = event->capture;
    if (stream->capture && stream->capture != capture) return CAPTURE_ISOLATION;
    if (!stream->capture) {
      join(capture, *stream, event->captureNode);
    } else {
      capture->pending[stream->captureBranch].push_back(event->captureNode);
    }
    return SUCCESS;
  }
  if (stream->capture) {
    stream->capture->invalid = true;
    return CAPTURE_ISOLATION;
  }
  if (!event->record) {
    // Never recorded: the driver treats it as reached, so the wait does nothing. The caller hardly meant that.
    machine.unrecordedWaits.push_back(stream->label + " was told to wait for event " + std::to_string(event->id) +
                                      ", which had never been recorded");
    return SUCCESS;
  }
  stream->after.push_back(event->record->point);
  stream->clock.join(event->record->clock);
  // A separate operation, so that waiting for the stream also waits for the event.
  Task task;
  task.name = "a wait for event " + std::to_string(event->id);
  task.kind = "wait";
  return submit(*stream, task);
}

EMU_API cuEventQuery(Event *event) {
  ENTER(cuEventQuery, Entry::Driver);
  int status;
  if (!eventOf(event, status)) return status;
  if (event->capture) return CAPTURE_UNSUPPORTED;
  const bool is = reached(event);
  if (event->context->poison) return event->context->poison;
  return is ? SUCCESS : NOT_READY;
}

EMU_API cuEventSynchronize(Event *event) {
  ENTER(cuEventSynchronize, Entry::Driver);
  int status;
  if (!eventOf(event, status)) return status;
  if (event->capture) return CAPTURE_UNSUPPORTED;
  if (!event->record) return SUCCESS;
  const auto record = event->record;
  status = force(*record->point.stream, record->point.seq, record->clock);
  return status ? status : event->context->poison;
}

static int elapsed(float *ms, Event *start, Event *end) {
  int status;
  if (!eventOf(start, status) || !eventOf(end, status)) return status;
  if ((start->flags & 2) || (end->flags & 2) || !start->record || !end->record) return INVALID_HANDLE;
  if (!reached(start) || !reached(end)) return NOT_READY;
  *ms = (float)(((double)end->record->ns - (double)start->record->ns) / 1e6);
  return SUCCESS;
}

EMU_API cuEventElapsedTime(float *ms, Event *start, Event *end) {
  ENTER(cuEventElapsedTime, Entry::Driver);
  return elapsed(ms, start, end);
}

EMU_API cuEventElapsedTime_v2(float *ms, Event *start, Event *end) {
  ENTER(cuEventElapsedTime_v2, Entry::Driver);
  return elapsed(ms, start, end);
}
