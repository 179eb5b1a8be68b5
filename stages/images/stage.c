/* images: a folder, an archive or idx files as pictures of one size, in bytes, with their labels.
 */
#include "engine/stage.h"

#include "model/model.h"
#include "stages/images/image_choice.h"
#include "stages/images/image_find.h"
#include "stages/images/image_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IMAGES = 1 << 24, LARGEST_SIZE = 4096 };

static const struct espl_param params_table[] = {
    {.name = "source",
     .help =
         "folder with a folder for each class, archive of one (tar, zip; .xz .gz .bz2 .zst), idx "
         "file of pictures (plain or compressed), binary file of CIFAR-10 (*.bin), or a set that "
         "`espalier fetch` brought: fashion-mnist, cifar-10/data_batch_1.bin",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct espl_image_params, source)},
    {.name = "labels",
     .help = "idx file of labels (a path or SET/FILE), for an idx file of pictures",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct espl_image_params, labels)},
    {.name = "subset",
     .help = "folder inside the source that counts, for example test; its folders are the classes",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_OPTIONAL,
     .offset = offsetof(struct espl_image_params, subset)},
    {.name = "list",
     .help = "text with a line \"PICTURE LABEL\" for each picture of a folder or archive to take, "
             "as `espalier fetch imagenet-300` makes it (a path or SET/FILE); default all, with "
             "their folders for classes",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct espl_image_params, list)},
    {.name = "order",
     .help = "sorted by path (idx: as in the file), or shuffled by seed",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "sorted",
     .choices = espl_image_order_choices,
     .offset = offsetof(struct espl_image_params, order)},
    {.name = "seed",
     .help = "seed of the shuffle; the job's seed does not matter, so that two stages can take "
             "different parts of one order",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = 4294967295.0,
     .offset = offsetof(struct espl_image_params, seed)},
    {.name = "first",
     .help = "pictures of that order to pass over",
     .unit = "images",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = MOST_IMAGES,
     .offset = offsetof(struct espl_image_params, first)},
    {.name = "count",
     .help = "pictures to take from there; 0 = all",
     .unit = "images",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = MOST_IMAGES,
     .offset = offsetof(struct espl_image_params, count)},
    {.name = "size",
     .help = "side of the square that comes out; 0 = what the model reads, or an idx file's own",
     .unit = "pixels",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = LARGEST_SIZE,
     .offset = offsetof(struct espl_image_params, size)},
    {.name = "channels",
     .help = "1 (grey) or 3 (colour); 0 = what the model reads, or an idx file's own",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = 3,
     .offset = offsetof(struct espl_image_params, channels)},
    {.name = "crop_pct",
     .help = "side of the crop over the shorter side before it (timm's crop_pct); 0 = the model's, "
             "without a model 1",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0",
     .min = 0.0,
     .max = 1.0,
     .offset = offsetof(struct espl_image_params, crop_pct)},
    {.name = "interpolation",
     .help = "filter of the resize, antialiased; auto = the model's, without a model bicubic",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = espl_image_interpolation_choices,
     .offset = offsetof(struct espl_image_params, interpolation)},
    {.name = "mean",
     .help = "mean of each channel on the scale 0 to 1, taken off before the model; default the "
             "model's, without a model ImageNet's",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .flags = ESPL_PARAM_LIST | ESPL_PARAM_OPTIONAL,
     .min = -100.0,
     .max = 100.0,
     .offset = offsetof(struct espl_image_params, mean)},
    {.name = "std",
     .help = "what each channel is divided by after that; default as for mean",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .flags = ESPL_PARAM_LIST | ESPL_PARAM_OPTIONAL,
     .min = 0.0,
     .max = 100.0,
     .offset = offsetof(struct espl_image_params, std)},
    {.name = "on_error",
     .help = "a picture that cannot be read ends the stage, or is left out and counted",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "fail",
     .choices = espl_image_on_error_choices,
     .offset = offsetof(struct espl_image_params, on_error)},
    {.name = "memory",
     .help = "most bytes of an archive's picture files that are kept at a time",
     .unit = "",
     .type = ESPL_PARAM_SIZE,
     .flags = ESPL_PARAM_NO_HASH,
     .default_text = "2GiB",
     .min = 1048576.0,
     .max = 1e15,
     .offset = offsetof(struct espl_image_params, memory)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {.name = "model",
     .kind = ESPL_MODEL_KINDS,
     .flags = ESPL_PORT_OPTIONAL,
     .help = "image model whose size, crop, mean and std are the defaults"},
    {.name = NULL},
};

static const struct espl_port outputs[] = {
    {.name = "images", .kind = "images/1", .help = "pictures of one size and their labels"},
    {.name = NULL},
};

/* ---- plan ---- */

/* size and channels may stay 0, and count unknown, until the source has been read. */
static json_t *describe(const struct espl_image_params *params,
                        const struct espl_image_setup *setup)
{
    const size_t channels = setup->fit.channels;
    json_t *mean = json_array();
    json_t *std = json_array();
    for (size_t c = 0; c < channels; c++) {
        (void)json_array_append_new(mean, json_real(setup->mean[c]));
        (void)json_array_append_new(std, json_real(setup->std[c]));
    }
    return json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:{s:f, s:I, s:s}, s:{s:s, s:I, s:I}}", "height",
        (json_int_t)setup->fit.size, "width", (json_int_t)setup->fit.size, "channels",
        (json_int_t)channels, "mean", mean, "std", std, "resize", "crop_pct", setup->crop_pct,
        "shorter_side", (json_int_t)setup->fit.resized, "interpolation",
        espl_image_interpolation_choices[setup->fit.filter == ESPL_FILTER_BICUBIC ? 1 : 2],
        "choice", "order", espl_image_order_choices[params->order], "seed",
        (json_int_t)params->seed, "first", (json_int_t)params->first);
}

static enum espl_status setup_from_model(const json_t *description,
                                         const struct espl_image_params *params,
                                         struct espl_image_setup *setup, struct espl_error *err)
{
    struct espl_model_config config;
    if (description == NULL) {
        return espl_image_setup_make(params, NULL, setup, err);
    }
    const enum espl_status status = espl_model_config_from_description(description, &config, err);
    return status == ESPL_OK ? espl_image_setup_make(params, &config, setup, err) : status;
}

/* A folder is known by the names and contents of its pictures. */
static enum espl_status plan_folder(struct espl_plan_ctx *ctx,
                                    const struct espl_image_params *params, struct espl_error *err)
{
    struct espl_image_source source;
    char digest[ESPL_SHA256_HEX];
    enum espl_status status = espl_image_source_open(params, &source, err);
    if (status != ESPL_OK) {
        return status; /* blamed */
    }
    struct espl_image_choice choice;
    status = espl_image_choice_make(params, source.count, &choice, err); /* are there as many? */
    espl_image_choice_free(&choice);
    if (status != ESPL_OK) {
        espl_image_source_close(&source);
        return status; /* blamed */
    }
    status = espl_image_list_digest(source.list, digest, err);
    espl_image_source_close(&source);
    if (status == ESPL_OK) {
        status = espl_plan_add_digest(ctx, "pictures", digest, err);
    }
    return status == ESPL_OK ? status : espl_blame(err, "param:source");
}

static enum espl_status plan_file(struct espl_plan_ctx *ctx, const char *role, const char *path,
                                  const char *parameter, struct espl_error *err)
{
    const enum espl_status status =
        path != NULL ? espl_plan_add_file(ctx, role, path, err) : ESPL_OK;
    return status == ESPL_OK ? status : espl_blame(err, parameter);
}

static enum espl_status plan_files(struct espl_plan_ctx *ctx,
                                   const struct espl_image_params *params, struct espl_error *err)
{
    const enum espl_image_form form = espl_image_form_of(params->source);
    /* The name decides what bytes mean here, so that it must show in the key. */
    const char *const role = form == ESPL_IMAGE_CIFAR ? "CIFAR-10" : "pictures";
    enum espl_status status = plan_file(ctx, "list", params->list, "param:list", err);
    if (status == ESPL_OK && form == ESPL_IMAGE_FOLDER) {
        return plan_folder(ctx, params, err);
    }
    if (status == ESPL_OK) {
        status = plan_file(ctx, role, params->source, "param:source", err);
    }
    return status == ESPL_OK ? plan_file(ctx, "labels", params->labels, "param:labels", err)
                             : status;
}

/* params: paths only. */
static enum espl_status plan_found(struct espl_plan_ctx *ctx,
                                   const struct espl_image_params *params,
                                   struct espl_estimate *est, struct espl_error *err)
{
    const bool own_size = espl_image_form_is_table(espl_image_form_of(params->source));
    struct espl_image_setup setup;
    enum espl_status status = espl_image_source_check(params, err);
    if (status == ESPL_OK) {
        status = setup_from_model(espl_plan_input(ctx, "model"), params, &setup, err);
    }
    if (status == ESPL_OK && !own_size && (setup.fit.size == 0 || setup.fit.channels == 0)) {
        (void)espl_fail(err, ESPL_E_JOB, "which size? no model is connected and '%s' is not given",
                        setup.fit.size == 0 ? "size" : "channels");
        (void)espl_hint(err, "in: {model: <stage>}, or size: 224 and channels: 3");
        status = espl_blame(err, setup.fit.size == 0 ? "param:size" : "param:channels");
    }
    if (status == ESPL_OK) {
        status = plan_files(ctx, params, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t bytes = setup.fit.size * setup.fit.size * setup.fit.channels;
    if (bytes > 0) {
        setup.fit.resized = espl_picture_resized_side(setup.fit.size, setup.crop_pct);
        espl_plan_set_output(ctx, "images", describe(params, &setup));
        (void)snprintf(est->note, sizeof est->note, "%s, %zu x %zu x %zu",
                       espl_image_form_name(espl_image_form_of(params->source)), setup.fit.size,
                       setup.fit.size, setup.fit.channels);
    }
    est->output_bytes = bytes * (uint64_t)params->count;
    est->host_bytes = (uint64_t)256 << 20;
    return ESPL_OK;
}

static enum espl_status images_plan(struct espl_plan_ctx *ctx, const void *raw_params,
                                    struct espl_estimate *est, struct espl_error *err)
{
    struct espl_image_params params = *(const struct espl_image_params *)raw_params;
    struct espl_image_found found;
    enum espl_status status = espl_image_find(&params, &found, err);
    if (status == ESPL_OK) {
        status = plan_found(ctx, &params, est, err);
    }
    espl_image_found_blame(&found, status, err);
    espl_image_found_free(&found);
    return status;
}

/* ---- run ---- */

/* What one run works on. */
struct job {
    struct espl_stage_ctx *ctx;
    const struct espl_image_params *params;
    struct espl_image_setup setup;
    struct espl_image_source source;
    struct espl_image_choice choice;
    uint8_t *pixels; /* one picture */
};

/* Bytes of a name that is not UTF-8 (a folder's may hold any) become '?', so that every class has
 * one. New reference; NULL when out of memory. */
static json_t *class_name(const char *name)
{
    json_t *text = json_string(name);
    char *copy = text == NULL ? strdup(name) : NULL;
    if (copy == NULL) {
        return text;
    }
    for (char *at = copy; *at != '\0'; at++) {
        *at = ((unsigned char)*at & 0x80u) != 0 ? '?' : *at;
    }
    text = json_string(copy);
    free(copy);
    return text;
}

static enum espl_status write_description(const struct job *job, struct espl_error *err)
{
    json_t *description = describe(job->params, &job->setup);
    json_t *names = json_array();
    const struct espl_image_list *list = job->source.list;
    for (size_t c = 0; list != NULL && c < espl_image_list_classes(list); c++) {
        (void)json_array_append_new(names, class_name(espl_image_list_class_name(list, c)));
    }
    (void)json_object_set_new(description, "count", json_integer((json_int_t)job->choice.count));
    (void)json_object_set_new(description, "classes",
                              json_integer((json_int_t)job->source.classes));
    (void)json_object_set_new(description, "class_names", names);
    (void)json_object_set_new(
        description, "source",
        json_pack("{s:s, s:I, s:I}", "form", espl_image_form_name(job->source.form), "pictures",
                  (json_int_t)job->source.count, "skipped", (json_int_t)job->choice.skipped));
    char *text = json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(description);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a description of pictures");
    }
    const enum espl_status status =
        espl_artifact_set_description(espl_ctx_output(job->ctx, "images"), text, err);
    free(text);
    return status;
}

static enum espl_status write_labels(const struct job *job, struct espl_error *err)
{
    const uint64_t shape[] = {job->choice.count};
    const struct espl_tensor_info info =
        espl_tensor_info_make("/images/labels", ESPL_DTYPE_I32, 1, shape);
    int32_t *labels = calloc((size_t)job->choice.count, sizeof *labels);
    if (labels == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for labels");
    }
    for (uint64_t i = 0; i < job->choice.count; i++) {
        labels[i] = espl_image_source_label(&job->source, job->choice.indices[i]);
    }
    const enum espl_status status =
        espl_artifact_write(espl_ctx_output(job->ctx, "images"), &info, labels, err);
    free(labels);
    return status;
}

static enum espl_status write_pixels(const struct job *job, struct espl_error *err)
{
    static const char path[] = "/images/pixels";
    const struct espl_picture_fit *fit = &job->setup.fit;
    const uint64_t shape[] = {job->choice.count, fit->size, fit->size, fit->channels};
    const struct espl_tensor_info info = espl_tensor_info_make(path, ESPL_DTYPE_U8, 4, shape);
    struct espl_artifact *output = espl_ctx_output(job->ctx, "images");
    enum espl_status status = espl_artifact_create_rows(output, &info, err);
    for (uint64_t i = 0; status == ESPL_OK && i < job->choice.count; i++) {
        if (espl_ctx_cancelled(job->ctx)) {
            return espl_ctx_stop(job->ctx, err);
        }
        status = espl_image_source_fit(&job->source, job->choice.indices[i], fit, job->pixels, err);
        if (status != ESPL_OK) {
            return espl_blame(err, "param:source");
        }
        status = espl_artifact_append_rows(output, path, 1, job->pixels, err);
        espl_ctx_progress(job->ctx, i + 1, job->choice.count, "image");
    }
    return status;
}

static enum espl_status open_job(struct job *job, struct espl_error *err)
{
    struct espl_artifact *model = espl_ctx_input(job->ctx, "model");
    json_t *description =
        model != NULL ? json_loads(espl_artifact_description(model), 0, NULL) : NULL;
    enum espl_status status = setup_from_model(description, job->params, &job->setup, err);
    json_decref(description);
    if (status == ESPL_OK) {
        status = espl_image_source_open(job->params, &job->source, err);
    }
    if (status == ESPL_OK) {
        const struct espl_idx *idx = &job->source.pictures;
        status = espl_image_setup_finish(job->params, idx->shape[1], idx->shape[2],
                                         idx->rank == 4 ? idx->shape[3] : 1, &job->setup, err);
    }
    const struct espl_picture_fit *fit = &job->setup.fit;
    job->pixels = status == ESPL_OK ? malloc(fit->size * fit->size * fit->channels) : NULL;
    if (status == ESPL_OK && job->pixels == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a picture");
    }
    return status;
}

static enum espl_status report(const struct job *job, struct espl_error *err)
{
    const struct {
        const char *name;
        uint64_t value;
    } metrics[] = {
        {"images", job->choice.count},
        {"classes", job->source.classes},
        {"skipped", job->choice.skipped},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof metrics / sizeof metrics[0]; i++) {
        status = espl_ctx_metric(job->ctx, metrics[i].name, (double)metrics[i].value, false, err);
    }
    return status;
}

static enum espl_status images_run(struct espl_stage_ctx *ctx, const void *raw_params,
                                   struct espl_error *err)
{
    struct espl_image_params params = *(const struct espl_image_params *)raw_params;
    struct espl_image_found found;
    struct job job = {.ctx = ctx, .params = &params};
    enum espl_status status = espl_image_find(&params, &found, err);
    if (status == ESPL_OK) {
        status = open_job(&job, err);
    }
    if (status == ESPL_OK) {
        espl_image_source_warn(&job.source, job.setup.model_classes, espl_ctx_log(ctx));
        status = espl_image_choice_make(job.params, job.source.count, &job.choice, err);
    }
    if (status == ESPL_OK && job.params->on_error == ESPL_IMAGE_ON_ERROR_SKIP) {
        status = espl_image_choice_drop_unreadable(ctx, &job.source, &job.setup.fit, job.pixels,
                                                   &job.choice, err);
    }
    if (status == ESPL_OK) {
        status = write_description(&job, err);
    }
    if (status == ESPL_OK) {
        status = write_pixels(&job, err);
    }
    if (status == ESPL_OK && job.source.classes > 0) {
        status = write_labels(&job, err);
    }
    if (status == ESPL_OK) {
        status = report(&job, err);
    }
    espl_image_choice_free(&job.choice);
    espl_image_source_close(&job.source);
    free(job.pixels);
    espl_image_found_blame(&found, status, err);
    espl_image_found_free(&found);
    return status;
}

const struct espl_stage espl_stage_images = {
    .name = "images",
    .summary = "pictures of a folder, an archive or idx files, decoded and cropped to one size",
    .cache_version = 2,
    .params = params_table,
    .params_size = sizeof(struct espl_image_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = images_plan,
    .run = images_run,
};
