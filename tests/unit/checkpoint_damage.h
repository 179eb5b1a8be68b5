/* One thing made wrong in a checkpoint folder of the fixture. Everything fails the test that calls
 * it when the folder is not as expected. */
#ifndef ESPL_TESTS_CHECKPOINT_DAMAGE_H
#define ESPL_TESTS_CHECKPOINT_DAMAGE_H

#define DAMAGE_WEIGHTS "model.safetensors"
#define DAMAGE_INDEX   "model.safetensors.index.json"
#define DAMAGE_CONFIG  "config.json"
#define DAMAGE_HEAD    "lm_head.weight"

/** config.json[key] = the JSON text, or the key goes when it is NULL. */
void damage_change_config(const char *folder, const char *key, const char *text);
/** weight_map[tensor] of the index. */
void damage_change_index(const char *folder, const char *tensor, const char *text);
/** A member of the entry of lm_head in the header; member NULL: the entry itself. */
void damage_change_header(const char *folder, const char *member, const char *text);
/** Name of the last shard. */
void damage_last_shard(const char *folder, char name[64]);

void damage_length_zero(const char *folder);
void damage_length_beyond_the_file(const char *folder);
void damage_header_is_garbage(const char *folder);
void damage_header_is_a_list(const char *folder);
void damage_header_has_a_name_twice(const char *folder);
void damage_name_with_a_newline(const char *folder);
void damage_overlap(const char *folder);
void damage_weights_cut(const char *folder);
void damage_weights_longer(const char *folder);
void damage_weights_empty(const char *folder);
void damage_weights_folder(const char *folder);
void damage_weights_pipe(const char *folder);
void damage_weights_dangling(const char *folder);
void damage_weights_pickled(const char *folder);
void damage_weights_missing(const char *folder);
void damage_config_missing(const char *folder);
void damage_config_empty(const char *folder);
void damage_config_list(const char *folder);
void damage_config_folder(const char *folder);
void damage_config_pipe(const char *folder);
void damage_config_huge(const char *folder);
void damage_config_key_twice(const char *folder);
void damage_shard_missing(const char *folder);
void damage_shard_dangling(const char *folder);
void damage_shard_cut(const char *folder);
void damage_index_folder(const char *folder);
void damage_index_without_map(const char *folder);
void damage_single_file_beside(const char *folder);

#endif
