/* Delegates for the tests: they take no operator, or cannot be made, or refuse the model. What an external delegate is
 * comes from tensorflow/lite/core/c/common.h (TfLiteDelegate) and the two functions that load_delegate looks up. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct delegate {
  void *data;
  int (*prepare)(void *context, struct delegate *self);
  void *copy_from, *copy_to, *free_handle;
  int64_t flags;
  void *builder;
};

static int take_nothing(void *context, struct delegate *self) {
  (void)context, (void)self;
  return 0; /* kTfLiteOk */
}

static int refuse(void *context, struct delegate *self) {
  (void)context, (void)self;
  return 2; /* kTfLiteDelegateError */
}

struct delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t n, void (*report)(const char *)) {
  struct delegate *made = calloc(1, sizeof *made);
  made->prepare = take_nothing;
  for (size_t i = 0; i < n; i++) {
    if (strcmp(keys[i], "how") == 0 && strcmp(values[i], "no device") == 0) {
      report("no such device");
      free(made);
      return NULL;
    }
    if (strcmp(keys[i], "how") == 0 && strcmp(values[i], "refuse") == 0) made->prepare = refuse;
  }
  return made;
}

void tflite_plugin_destroy_delegate(struct delegate *made) { free(made); }
